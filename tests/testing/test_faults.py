"""Fault rules on their own, without a broker."""

from __future__ import annotations

import pytest

from headrace.broker.ports import Delay, Drop, Fail
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.testing import Faults


def ask(faults: Faults, api: ApiKey) -> object:
    return faults.on_request(api, 0, None)


def test_only_the_nth_request_of_the_api_meets_the_fault() -> None:
    faults = Faults()
    faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", nth=2)
    assert ask(faults, ApiKey.PRODUCE) is None
    assert ask(faults, ApiKey.FETCH) is None
    assert ask(faults, ApiKey.PRODUCE) == Fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert ask(faults, ApiKey.PRODUCE) is None


def test_times_extends_the_fault_to_the_requests_that_follow() -> None:
    faults = Faults()
    fault = faults.delay(ApiKey.FETCH, 0.5, times=2)
    answers = [ask(faults, ApiKey.FETCH) for _ in range(3)]
    assert answers == [Delay(0.5), Delay(0.5), None]
    assert (fault.seen, fault.hits) == (3, 2)


def test_a_rule_counts_from_the_moment_it_is_made() -> None:
    faults = Faults()
    first = faults.drop("Fetch", nth=3)
    ask(faults, ApiKey.FETCH)
    faults.drop("Fetch", nth=1)
    assert ask(faults, ApiKey.FETCH) == Drop()
    assert ask(faults, ApiKey.FETCH) == Drop()
    assert first.hits == 1


def test_the_first_rule_wins_and_the_others_still_count() -> None:
    faults = Faults()
    faults.fail("Metadata", ErrorCode.UNKNOWN_SERVER_ERROR)
    second = faults.drop("Metadata")
    assert ask(faults, ApiKey.METADATA) == Fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert second.hits == 1


def test_clear_forgets_every_rule() -> None:
    faults = Faults()
    faults.drop("Heartbeat", times=100)
    faults.clear()
    assert ask(faults, ApiKey.HEARTBEAT) is None


@pytest.mark.parametrize("name", ["ListOffsets", "list_offsets", "LIST_OFFSETS", 2])
def test_an_api_goes_by_name_in_any_spelling_or_by_key(name: str | int) -> None:
    faults = Faults()
    faults.drop(name)
    assert ask(faults, ApiKey.LIST_OFFSETS) == Drop()


def test_unknown_names_are_refused_when_the_rule_is_made() -> None:
    faults = Faults()
    with pytest.raises(ValueError, match="'Prodcue' is not an API"):
        faults.drop("Prodcue")
    with pytest.raises(ValueError, match="'OOPS' is not an error"):
        faults.fail("Produce", "OOPS")
    with pytest.raises(ValueError, match="must be at least 1"):
        faults.drop("Produce", nth=0)


def test_waiting_for_a_fault_that_does_not_come_says_what_was_seen() -> None:
    fault = Faults().drop("Produce")
    with pytest.raises(TimeoutError, match=r"no PRODUCE request .* \(0 seen\)"):
        fault.wait(timeout=0.01)

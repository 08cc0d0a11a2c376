"""Transactions as administrators see them."""

from __future__ import annotations

import pytest

from headrace.coordinator.transactions.describe import described, listed, matching
from headrace.coordinator.transactions.records import Transaction
from headrace.coordinator.transactions.states import State


def transaction(producer_id: int, state: State, start_ms: int) -> Transaction:
    return Transaction(producer_id, 0, 1_000, state, frozenset(), start_ms, start_ms)


KNOWN = {
    "idle": transaction(1, State.EMPTY, -1),
    "young": transaction(2, State.ONGOING, 9_000),
    "old": transaction(3, State.ONGOING, 1_000),
    "over": transaction(4, State.COMPLETE_ABORT, 8_000),
}


@pytest.mark.parametrize(
    ("states", "producer_ids", "duration_ms", "found"),
    [
        ((), (), -1, {"idle", "young", "old", "over"}),
        (("Ongoing",), (), -1, {"young", "old"}),
        (("Ongoing", "CompleteAbort"), (2, 4), -1, {"young", "over"}),
        (("Nonsense",), (), -1, set()),
        ((), (7,), -1, set()),
        (("Ongoing",), (), 5_000, {"old"}),
        (("Ongoing",), (), 0, {"young", "old"}),
        ((), (), 9_000, {"idle"}),
    ],
)
def test_filters(
    states: tuple[str, ...], producer_ids: tuple[int, ...], duration_ms: int, found: set[str]
) -> None:
    rows = listed(KNOWN, states, producer_ids, duration_ms, 10_000)
    assert {row.transactional_id for row in rows} == found


def test_a_transaction_is_described_with_its_partitions_by_topic() -> None:
    known = KNOWN["old"]._replace(partitions=frozenset({("b", 1), ("a", 2), ("b", 0)}))
    row = described("old", known)
    assert (row.transactional_id, row.transaction_state) == ("old", "Ongoing")
    assert (row.producer_id, row.producer_epoch, row.transaction_timeout_ms) == (3, 0, 1_000)
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("a", [2]), ("b", [0, 1])]


def test_a_pattern_matches_whole_ids() -> None:
    assert matching("a.*", ["ab", "ba", "a"]) == ["ab", "a"]
    assert matching("b", ["ab"]) == []


@pytest.mark.parametrize("pattern", ["(", "*", "[", "(" * 5_000])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        matching(pattern, ["a"])

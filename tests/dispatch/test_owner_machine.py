"""The owner's machine: one story per promise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.dispatch.effects import (
    ChangeToken,
    Check,
    Claim,
    Commit,
    Effect,
    Probe,
    Query,
    Refuse,
    Run,
    Seek,
)
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.owned_partition import TRANSITIONS, Event, IllegalTransition, State, moved
from headrace.dispatch.owner_machine import OwnerMachine
from headrace.dispatch.tokens.store import Answer, Fence, Put, Renew, Revoke, TokenView
from headrace.dispatch.tokens.token_table import TokenTable

LIMITS = DispatchLimits(
    lease_ms=1_000, heal_interval_ms=100, heal_misses=2, tick_ms=50, inherited_max=2
)
P = 7


@pytest.fixture
def owner() -> OwnerMachine:
    return OwnerMachine(LIMITS)


def idle_at(owner: OwnerMachine, offset: int, epoch: int = 1) -> Fence:
    """The partition is ours and nothing is in it."""
    owner.assigned(P, epoch, offset, offset)
    return Fence(epoch, offset)


def seen(owner: OwnerMachine, found: TokenView | None, *, age_ms: int = 60_000) -> list[Effect]:
    return owner.answered(Answer(views={P: found}, incarnation="x", age_ms=age_ms))


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_an_empty_partition_puts_its_token_at_once_and_commits_where_it_begins(
    owner: OwnerMachine,
) -> None:
    assert owner.assigned(P, 3, 10, 10) == [ChangeToken(Put(P, Fence(3, 10))), Commit(P, 10)]


def test_a_job_with_the_current_fence_runs_and_gives_the_token_back(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    assert owner.record(P, 10, fence, "a") == [Run(P, 10, "a", fence, False)]
    assert owner.finished(P, 10) == [ChangeToken(Put(P, Fence(1, 11)))]
    # Only the commit waits for the outcome to be durable.
    assert owner.written(P, 10) == [Commit(P, 11)]


def test_a_repeated_token_is_refused_at_once_even_behind_a_running_job(
    owner: OwnerMachine,
) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    assert owner.record(P, 11, fence, "b") == [Refuse(P, 11, "b")]
    assert owner.written(P, 11) == []
    assert owner.finished(P, 10) == [ChangeToken(Put(P, Fence(1, 12)))]
    assert owner.written(P, 10) == [Commit(P, 12)]
    assert owner.counts["refused"] == 1


def test_the_copy_of_a_record_is_dropped_while_its_job_runs_and_after(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    assert owner.record(P, 11, fence, "a") == []
    # Another job with the same token is not a copy.
    assert owner.record(P, 12, fence, "b") == [Refuse(P, 12, "b")]
    assert owner.finished(P, 10) == [ChangeToken(Put(P, Fence(1, 13)))]
    assert owner.record(P, 13, fence, "a") == []
    owner.written(P, 12)
    assert owner.written(P, 10) == [Commit(P, 14)]
    assert (owner.counts["copies"], owner.counts["refused"]) == (2, 1)


def test_a_copy_behind_a_job_that_came_back_running_is_dropped(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    owner.revoked(P)
    owner.assigned(P, 2, 10, 12)
    assert owner.record(P, 10, fence, "a") == [Commit(P, 10)]
    assert owner.record(P, 11, fence, "a") == []
    assert kinds(owner.finished(P, 10)) == ["ChangeToken", "ChangeToken"]


@pytest.mark.parametrize("fence", [None, Fence(0, 99), Fence(1, 9)])
def test_a_job_with_another_fence_never_runs(owner: OwnerMachine, fence: Fence | None) -> None:
    idle_at(owner, 10)
    assert owner.record(P, 10, fence, "a") == [Refuse(P, 10, "a")]


def test_a_record_without_a_value_gives_the_token_back_with_a_new_fence(
    owner: OwnerMachine,
) -> None:
    old = idle_at(owner, 10)
    effects = owner.record(P, 10, None, None)
    assert effects == [ChangeToken(Put(P, Fence(1, 11))), Commit(P, 11)]
    # The token that was given out before is worthless.
    assert owner.record(P, 11, old, "late") == [Refuse(P, 11, "late")]


def test_a_record_without_a_value_behind_a_running_job_changes_nothing(
    owner: OwnerMachine,
) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    assert owner.record(P, 11, None, None) == []
    assert owner.finished(P, 10) == [ChangeToken(Put(P, Fence(1, 12)))]


def test_revoking_an_idle_partition_takes_its_token_away(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    assert owner.revoked(P) == [ChangeToken(Revoke(P, fence))]
    assert owner.record(P, 10, fence, "a") == []
    assert owner.partitions == {}


def test_a_running_job_outlives_the_assignment_and_keeps_its_lease(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    assert owner.revoked(P) == [ChangeToken(Renew(P, fence))]
    assert owner.tick(50) == [ChangeToken(Renew(P, fence))]
    # The next owner looks for the outcome when the lease is gone, so it has to be there by then.
    assert owner.finished(P, 10) == []
    assert owner.written(P, 10) == [ChangeToken(Revoke(P, fence))]
    assert owner.partitions == {}


def test_a_partition_that_comes_back_goes_on_with_its_job(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    owner.revoked(P)
    assert owner.assigned(P, 2, 10, 11) == []
    assert owner.record(P, 10, fence, "a") == [Commit(P, 10)]
    assert owner.finished(P, 10) == [
        ChangeToken(Revoke(P, fence)),
        ChangeToken(Put(P, Fence(2, 11))),
    ]
    assert owner.written(P, 10) == [Commit(P, 11)]


def test_a_partition_that_comes_back_between_end_and_outcome_goes_on(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    owner.revoked(P)
    owner.finished(P, 10)
    assert owner.assigned(P, 2, 10, 11) == [ChangeToken(Revoke(P, fence)), Commit(P, 10)]
    assert owner.record(P, 10, fence, "a") == [ChangeToken(Put(P, Fence(2, 11)))]
    assert owner.written(P, 10) == [Commit(P, 11)]


def test_the_next_owner_waits_for_the_lease_then_runs_what_is_not_settled(
    owner: OwnerMachine,
) -> None:
    assert owner.assigned(P, 2, 10, 12) == [Commit(P, 10)]
    assert owner.record(P, 10, Fence(1, 10), "a") == [Query(P)]
    assert owner.record(P, 11, Fence(1, 11), "b") == []
    assert seen(owner, TokenView(Fence(1, 10), "out", "other", 500)) == []
    assert owner.tick(50) == [Query(P)]
    # Another node's lease is over: take a lease first, so that no other node comes between.
    mine = Fence(2, 10)
    assert seen(owner, TokenView(Fence(1, 10), "out", "other", 0)) == [
        ChangeToken(Renew(P, mine)),
        Query(P),
    ]
    check = Check(P, 10, "a", 2)
    assert seen(owner, TokenView(mine, "out", "me", 1_000)) == [check]
    assert owner.checked(check, True) == [Check(P, 11, "b", 2), Commit(P, 11)]
    effects = owner.checked(Check(P, 11, "b", 2), False)
    assert effects == [Run(P, 11, "b", Fence(2, 11), True), ChangeToken(Renew(P, Fence(2, 11)))]
    assert owner.finished(P, 11) == [ChangeToken(Put(P, Fence(2, 12)))]
    assert owner.counts["inherited"] == 1


def test_a_young_store_proves_nothing(owner: OwnerMachine) -> None:
    owner.assigned(P, 2, 10, 11)
    owner.record(P, 10, Fence(1, 10), "a")
    assert seen(owner, None, age_ms=999) == []
    assert kinds(seen(owner, None, age_ms=1_000)) == ["ChangeToken", "Query"]


def test_who_only_waits_for_a_lease_does_not_end_it_when_revoked(owner: OwnerMachine) -> None:
    owner.assigned(P, 2, 10, 11)
    owner.record(P, 10, Fence(1, 10), "a")
    assert owner.revoked(P) == []


def test_an_answer_to_an_earlier_assignment_is_ignored(owner: OwnerMachine) -> None:
    for epoch in (2, 3):
        owner.assigned(P, epoch, 10, 11)
        owner.record(P, 10, Fence(1, 10), "a")
        seen(owner, TokenView(Fence(epoch, 10), "out", "me", 1_000))
        if epoch == 2:
            owner.revoked(P)
    assert owner.checked(Check(P, 10, "a", 2), False) == []
    assert kinds(owner.checked(Check(P, 10, "a", 3), True)) == ["ChangeToken", "Commit"]


def test_an_outcome_on_its_way_is_not_run_again(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    owner.finished(P, 10)
    owner.revoked(P)
    owner.assigned(P, 2, 10, 11)
    assert owner.record(P, 10, fence, "a") == [ChangeToken(Put(P, Fence(2, 11)))]
    assert owner.written(P, 10) == [Commit(P, 11)]


def test_more_than_the_limit_is_not_inherited(owner: OwnerMachine) -> None:
    owner.assigned(P, 2, 0, 4)
    effects = [owner.record(P, offset, Fence(1, 0), f"job {offset}") for offset in range(4)]
    assert [kinds(found) for found in effects] == [["Query"], [], ["Refuse"], ["Refuse"]]


def test_what_no_node_has_sent_is_never_run(owner: OwnerMachine) -> None:
    owner.assigned(P, 2, 10, 11)
    assert kinds(owner.record(P, 10, None, "")) == ["Refuse", "ChangeToken"]
    assert kinds(owner.record(P, 11, None, "")) == ["Refuse"]


def test_records_that_no_consumer_sees_do_not_hold_the_token_back(owner: OwnerMachine) -> None:
    """A log that ends with a transaction's marker never gives its last offset to a reader."""
    owner.assigned(P, 2, 10, 11)
    assert owner.tick(0) == []
    assert owner.tick(100) == [Probe(P)]
    assert kinds(owner.record(P, 11, None, None)) == ["ChangeToken", "Commit"]


@pytest.mark.parametrize(
    "found",
    [
        None,
        TokenView(Fence(1, 9), "idle", "", 0),
        TokenView(Fence(1, 10), "out", "dead", 0),
        TokenView(Fence(1, 10), "revoked", "", 0),
    ],
)
def test_a_token_that_is_missed_often_enough_is_probed_for(
    owner: OwnerMachine, found: TokenView | None
) -> None:
    idle_at(owner, 10)
    assert owner.tick(0) == [Query(P)]
    assert seen(owner, found) == []
    assert owner.tick(50) == []
    assert owner.tick(100) == [Query(P)]
    assert seen(owner, found) == [Probe(P)]


@pytest.mark.parametrize("state", ["idle", "offered", "out"])
def test_a_token_that_is_there_is_left_alone(owner: OwnerMachine, state: str) -> None:
    fence = idle_at(owner, 10)
    for _ in range(5):
        assert seen(owner, TokenView(fence, state, "", 10)) == []  # type: ignore[arg-type]


def test_a_store_that_was_born_anew_is_rebuilt_at_once(owner: OwnerMachine) -> None:
    idle_at(owner, 10)
    owner.assigned(8, 1, 0, 0)
    owner.record(8, 0, Fence(1, 0), "a")
    assert owner.answered(Answer(incarnation="first")) == []
    assert owner.answered(Answer(incarnation="second")) == [Probe(P)]
    assert ChangeToken(Renew(8, Fence(1, 0))) in owner.tick(1_000_000)


def test_a_newer_fence_in_the_log_silences_the_owner_until_the_group_confirms_it(
    owner: OwnerMachine,
) -> None:
    idle_at(owner, 10)
    assert owner.record(P, 10, Fence(2, 10), "of the next owner") == [Claim(P, 10)]
    assert owner.record(P, 11, Fence(1, 10), "a") == []
    assert owner.record(P, 12, None, None) == []
    assert owner.tick(0) == [Claim(P, 10)]
    # It was a leftover of a group of the same name: all since is read again, and the token forced.
    assert owner.claimed(P) == [Seek(P, 10)]
    assert owner.record(P, 10, Fence(2, 10), "b") == [Query(P)]
    seen(owner, TokenView(Fence(1, 10), "out", "me", 1_000))
    assert kinds(owner.checked(Check(P, 10, "b", 1), True)) == ["Commit"]
    owner.record(P, 11, None, None)
    effects = owner.record(P, 12, None, None)
    assert effects[0] == ChangeToken(Put(P, Fence(1, 13), is_forced=True))


def test_a_newer_fence_behind_a_running_job_is_looked_at_when_it_ends(owner: OwnerMachine) -> None:
    fence = idle_at(owner, 10)
    owner.record(P, 10, fence, "a")
    assert owner.record(P, 11, Fence(9, 0), "b") == []
    assert owner.finished(P, 10) == [Claim(P, 10)]


def test_a_newer_fence_in_the_store_is_overruled_when_the_group_confirms_it(
    owner: OwnerMachine,
) -> None:
    fence = idle_at(owner, 10)
    newer = TokenView(Fence(57, 3), "idle", "", 0)
    assert seen(owner, newer) == []
    assert seen(owner, newer) == [Claim(P, 10)]
    assert owner.claimed(P) == [ChangeToken(Put(P, fence, is_forced=True))]


def test_a_deleted_groups_lease_on_an_inherited_job_is_overruled(owner: OwnerMachine) -> None:
    """The store is a real table, which refuses what is older than what it knows."""
    table = TokenTable("born", 0, LIMITS)
    old = Fence(57, 10)
    table.exchange("old", [Put(P, old)], 0)
    table.exchange("submitter", [], 0, want=1)

    def exchange(effects: list[Effect], now_ms: int) -> list[Effect]:
        changes = [effect.change for effect in effects if isinstance(effect, ChangeToken)]
        looks = [effect.partition for effect in effects if isinstance(effect, Query)]
        return owner.answered(table.exchange("me", changes, now_ms, query=looks))

    effects = owner.assigned(P, 1, 10, 11)
    effects += owner.record(P, 10, old, "a")
    assert exchange(effects, 500) == []
    for now_ms in (2_000, 2_050):
        effects = exchange(owner.tick(now_ms), now_ms)
    assert effects == [Claim(P, 10)]
    effects = exchange(owner.claimed(P), 2_100)
    assert effects == [ChangeToken(Renew(P, Fence(1, 10), is_forced=True)), Query(P)]
    assert exchange(effects, 2_150) == [Check(P, 10, "a", 1)]


def test_the_fence_grows_whatever_happens(owner: OwnerMachine) -> None:
    effects: list[Effect] = []
    for epoch, start in ((1, 0), (2, 3), (3, 6)):
        effects += owner.assigned(P, epoch, start, start)
        for offset in range(start, start + 3):
            effects += owner.record(P, offset, None, None)
        owner.revoked(P)
    found = [effect.change.fence for effect in effects if isinstance(effect, ChangeToken)]
    assert len(found) == 12
    assert found == sorted(set(found))


def test_the_table_is_obeyed() -> None:
    for state in State:
        for event in Event:
            if (state, event) in TRANSITIONS:
                assert moved(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransition):
                    moved(state, event)


def test_every_state_is_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(State)
    assert {before for before, _ in TRANSITIONS} == set(State)

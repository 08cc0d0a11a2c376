"""Members with an instance id keep their place over restarts (KIP-345)."""

from __future__ import annotations

from typing import Any

from tests.coordinator.harness import Harness, Waiting, subscription

from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.errors import ErrorCode


def stable_pair(harness: Harness, **options: Any) -> tuple[str, str]:
    """A stable group of two static members, `a` (the leader) and `b`."""
    joins = [harness.join(instance=instance, **options) for instance in ("a", "b")]
    harness.advance(0)
    first, second = (join.joined.member_id for join in joins)
    harness.share_out([first, second])
    return first, second


def test_a_static_member_needs_no_second_join() -> None:
    harness = Harness()
    join = harness.join(instance="a")
    assert join.waits
    harness.advance(0)
    assert join.joined.member_id == "a-001"
    assert harness.group.members["a-001"].instance_id == "a"


def test_a_follower_that_comes_back_keeps_its_share_without_a_rebalance() -> None:
    harness = Harness()
    first, second = stable_pair(harness)
    answer = harness.join(instance="b").joined
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id not in (first, second)
    assert (answer.generation_id, answer.leader, answer.members) == (1, first, [])
    assert harness.state() is State.STABLE
    assert harness.sync(answer.member_id, 1).synced.assignment == second.encode()
    assert harness.heartbeat(answer.member_id, 1, instance="b") is ErrorCode.NONE


def test_the_one_that_was_replaced_is_fenced() -> None:
    harness = Harness()
    _, second = stable_pair(harness)
    harness.join(instance="b")
    assert harness.heartbeat(second, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.sync(second, 1, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.join(second, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    commit = harness.commit({("t", 0): 1}, second, 1, instance="b")
    assert commit == [ErrorCode.FENCED_INSTANCE_ID]
    assert harness.leave((second, "b")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert harness.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_learns_the_group_but_assigns_nothing() -> None:
    harness = Harness()
    _, second = stable_pair(harness)
    answer = harness.join(instance="a", version=9).joined
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert {member.member_id for member in answer.members} == {answer.member_id, second}
    assert harness.group.leader == answer.member_id


def test_a_leader_of_an_older_client_does_not_take_itself_for_one() -> None:
    harness = Harness()
    first, _ = stable_pair(harness)
    answer = harness.join(instance="a", version=8).joined
    assert answer.leader == first
    assert not answer.skip_assignment
    assert answer.members == []


def test_the_new_id_counts_from_when_it_is_stored() -> None:
    harness = Harness()
    _, second = stable_pair(harness)
    harness.disk_is_full = True
    assert harness.join(instance="b").waits
    harness.disk_is_full = False
    assert harness.heartbeat(second, 1, instance="b") is ErrorCode.NONE
    new_id = harness.join(instance="b").joined.member_id
    assert set(harness.recovered().groups["g"].members) == {"a-001", new_id}


def test_a_change_of_the_chosen_protocol_needs_a_rebalance() -> None:
    harness = Harness()
    first, _ = stable_pair(harness)
    both = {"sticky": subscription("t"), "range": subscription("t")}
    harness.join(first, instance="a", protocols=both)
    harness.join(instance="b", protocols=both)
    assert harness.state() is State.COMPLETING
    assert harness.group.protocol == "sticky"
    harness.share_out(list(harness.group.members))
    join = harness.join(instance="b", protocols={"range": subscription("t")})
    assert join.waits
    assert harness.state() is State.PREPARING


def test_coming_back_while_others_join() -> None:
    harness = Harness()
    first, second = stable_pair(harness)
    join = harness.join(first, instance="a")
    assert join.waits
    back = harness.join(instance="b")
    assert back.joined.generation_id == join.joined.generation_id == 2
    assert second not in harness.group.members


def test_a_parked_join_is_fenced_when_its_instance_comes_again() -> None:
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = harness.join(instance="a")
    second = harness.join(instance="a")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    harness.advance(6_000)
    assert second.joined.generation_id == 1
    assert len(harness.group.members) == 1


def test_a_parked_sync_is_fenced_when_its_instance_comes_again() -> None:
    harness = Harness()
    joins = [harness.join(instance=instance) for instance in ("a", "b")]
    harness.advance(0)
    waiting: Waiting = harness.sync(joins[1].joined.member_id, 1, instance="b")
    harness.join(instance="b")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.state() is State.PREPARING


def test_a_static_member_is_not_out_for_missing_a_joining() -> None:
    harness = Harness()
    first, second = stable_pair(harness, rebalance_ms=20_000, session_ms=1_000_000)
    join = harness.join(first, instance="a", rebalance_ms=20_000, session_ms=1_000_000)
    harness.advance(20_000)
    assert join.joined.generation_id == 2
    assert second in harness.group.members


def test_when_only_static_members_are_left_their_sessions_decide() -> None:
    harness = Harness()
    first, second = stable_pair(harness, rebalance_ms=20_000, session_ms=50_000)
    vanished = harness.join(instance="c", rebalance_ms=20_000, session_ms=50_000)
    harness.leave((harness.group.instances["c"], "c"))
    assert vanished.error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(20_000)
    assert harness.state() is State.PREPARING
    assert set(harness.group.members) == {first, second}
    harness.advance(30_000)
    assert harness.state() is State.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    harness = Harness()
    first, _ = stable_pair(harness)
    assert harness.leave(("", "b")) == [ErrorCode.NONE]
    assert set(harness.group.members) == {first}


def test_a_static_member_in_a_group_that_forgot_it_is_unknown() -> None:
    harness = Harness()
    stable_pair(harness)
    assert harness.heartbeat("x", 1, instance="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join("x", instance="x").error is ErrorCode.UNKNOWN_MEMBER_ID

"""Members with an instance id keep their place over restarts (KIP-345)."""

from __future__ import annotations

from typing import Any

from tests.coordinator.stage import Stage, Waiting, subscription

from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.errors import ErrorCode


def stable_pair(stage: Stage, **options: Any) -> tuple[str, str]:
    """A stable group of two static members, `a` (the leader) and `b`."""
    joins = [stage.join(instance=instance, **options) for instance in ("a", "b")]
    stage.advance(0)
    first, second = (join.joined.member_id for join in joins)
    stage.share_out([first, second])
    return first, second


def test_a_static_member_needs_no_second_join() -> None:
    stage = Stage()
    join = stage.join(instance="a")
    assert join.waits
    stage.advance(0)
    assert join.joined.member_id == "a-001"
    assert stage.group.members["a-001"].instance_id == "a"


def test_a_follower_that_comes_back_keeps_its_share_without_a_rebalance() -> None:
    stage = Stage()
    first, second = stable_pair(stage)
    answer = stage.join(instance="b").joined
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id not in (first, second)
    assert (answer.generation_id, answer.leader, answer.members) == (1, first, [])
    assert stage.state() is State.STABLE
    assert stage.sync(answer.member_id, 1).synced.assignment == second.encode()
    assert stage.heartbeat(answer.member_id, 1, instance="b") is ErrorCode.NONE


def test_the_one_that_was_replaced_is_fenced() -> None:
    stage = Stage()
    _, second = stable_pair(stage)
    stage.join(instance="b")
    assert stage.heartbeat(second, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert stage.sync(second, 1, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    assert stage.join(second, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    commit = stage.commit({("t", 0): 1}, second, 1, instance="b")
    assert commit == [ErrorCode.FENCED_INSTANCE_ID]
    assert stage.leave((second, "b")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert stage.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_comes_back_learns_the_group_but_assigns_nothing() -> None:
    stage = Stage()
    _, second = stable_pair(stage)
    answer = stage.join(instance="a", version=9).joined
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert {member.member_id for member in answer.members} == {answer.member_id, second}
    assert stage.group.leader == answer.member_id


def test_a_leader_of_an_older_client_does_not_take_itself_for_one() -> None:
    stage = Stage()
    first, _ = stable_pair(stage)
    answer = stage.join(instance="a", version=8).joined
    assert answer.leader == first
    assert not answer.skip_assignment
    assert answer.members == []


def test_the_new_id_counts_from_when_it_is_stored() -> None:
    stage = Stage()
    _, second = stable_pair(stage)
    stage.disk_is_full = True
    assert stage.join(instance="b").waits
    stage.disk_is_full = False
    assert stage.heartbeat(second, 1, instance="b") is ErrorCode.NONE
    new_id = stage.join(instance="b").joined.member_id
    assert set(stage.recovered().groups["g"].members) == {"a-001", new_id}


def test_a_change_of_the_chosen_protocol_needs_a_rebalance() -> None:
    stage = Stage()
    first, _ = stable_pair(stage)
    both = {"sticky": subscription("t"), "range": subscription("t")}
    stage.join(first, instance="a", protocols=both)
    stage.join(instance="b", protocols=both)
    assert stage.state() is State.COMPLETING
    assert stage.group.protocol == "sticky"
    stage.share_out(list(stage.group.members))
    join = stage.join(instance="b", protocols={"range": subscription("t")})
    assert join.waits
    assert stage.state() is State.PREPARING


def test_coming_back_while_others_join() -> None:
    stage = Stage()
    first, second = stable_pair(stage)
    join = stage.join(first, instance="a")
    assert join.waits
    back = stage.join(instance="b")
    assert back.joined.generation_id == join.joined.generation_id == 2
    assert second not in stage.group.members


def test_a_parked_join_is_fenced_when_its_instance_comes_again() -> None:
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = stage.join(instance="a")
    second = stage.join(instance="a")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    stage.advance(6_000)
    assert second.joined.generation_id == 1
    assert len(stage.group.members) == 1


def test_a_parked_sync_is_fenced_when_its_instance_comes_again() -> None:
    stage = Stage()
    joins = [stage.join(instance=instance) for instance in ("a", "b")]
    stage.advance(0)
    waiting: Waiting = stage.sync(joins[1].joined.member_id, 1, instance="b")
    stage.join(instance="b")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert stage.state() is State.PREPARING


def test_a_static_member_is_not_out_for_missing_a_joining() -> None:
    stage = Stage()
    first, second = stable_pair(stage, rebalance_ms=20_000, session_ms=1_000_000)
    join = stage.join(first, instance="a", rebalance_ms=20_000, session_ms=1_000_000)
    stage.advance(20_000)
    assert join.joined.generation_id == 2
    assert second in stage.group.members


def test_when_only_static_members_are_left_their_sessions_decide() -> None:
    stage = Stage()
    first, second = stable_pair(stage, rebalance_ms=20_000, session_ms=50_000)
    vanished = stage.join(instance="c", rebalance_ms=20_000, session_ms=50_000)
    stage.leave((stage.group.instances["c"], "c"))
    assert vanished.error is ErrorCode.UNKNOWN_MEMBER_ID
    stage.advance(20_000)
    assert stage.state() is State.PREPARING
    assert set(stage.group.members) == {first, second}
    stage.advance(30_000)
    assert stage.state() is State.EMPTY


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    stage = Stage()
    first, _ = stable_pair(stage)
    assert stage.leave(("", "b")) == [ErrorCode.NONE]
    assert set(stage.group.members) == {first}


def test_a_static_member_in_a_group_that_forgot_it_is_unknown() -> None:
    stage = Stage()
    stable_pair(stage)
    assert stage.heartbeat("x", 1, instance="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.join("x", instance="x").error is ErrorCode.UNKNOWN_MEMBER_ID

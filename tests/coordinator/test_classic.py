"""Members join, sync, beat and leave."""

from __future__ import annotations

import pytest
from tests.coordinator.stage import GROUP, Stage, subscription

from headrace.coordinator.settings import NEW_MEMBER_TIMEOUT_MS, GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.errors import ErrorCode


def test_a_new_member_is_told_its_id_first() -> None:
    stage = Stage()
    answer = stage.join().joined
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-001"
    assert not stage.group.members
    again = stage.join(answer.member_id)
    assert again.waits
    stage.advance(0)
    assert again.joined.generation_id == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_clients_join_without_knowing_their_id(version: int) -> None:
    stage = Stage()
    join = stage.join(version=version, rebalance_ms=-1)
    stage.advance(0)
    assert join.joined.generation_id == 1
    assert join.joined.leader == join.joined.member_id
    (member,) = stage.group.members.values()
    assert member.rebalance_timeout_ms == member.session_timeout_ms


def test_the_leader_learns_who_joined_and_the_others_do_not() -> None:
    stage = Stage()
    first, first_join = stage.new_member(protocols={"range": b"one"})
    second, second_join = stage.new_member(protocols={"range": b"two"})
    stage.advance(0)
    leader, follower = first_join.joined, second_join.joined
    assert (leader.leader, follower.leader) == (first, first)
    assert {m.member_id: m.metadata for m in leader.members} == {first: b"one", second: b"two"}
    assert follower.members == []
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")
    assert leader.generation_id == follower.generation_id == 1


def test_shares_reach_followers_when_the_leader_has_brought_them() -> None:
    stage = Stage()
    (leader, _), (follower, _) = stage.new_member(), stage.new_member()
    stage.advance(0)
    waiting = stage.sync(follower, 1)
    assert waiting.waits
    assert stage.state() is State.COMPLETING
    stage.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert waiting.synced.assignment == b"F"
    assert stage.state() is State.STABLE
    assert stage.sync(follower, 1).synced.assignment == b"F"


def test_a_member_without_a_share_gets_an_empty_one() -> None:
    stage = Stage()
    (leader, _), (follower, _) = stage.new_member(), stage.new_member()
    stage.advance(0)
    stage.sync(leader, 1, {leader: b"L", "stranger": b"S"})
    assert stage.sync(follower, 1).synced.assignment == b""


def test_shares_are_not_told_before_they_are_stored() -> None:
    stage = Stage()
    (leader, _), (follower, _) = stage.new_member(), stage.new_member()
    stage.advance(0)
    waiting = stage.sync(follower, 1)
    stage.disk_is_full = True
    stage.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert waiting.waits
    assert stage.state() is State.COMPLETING
    stage.disk_is_full = False
    stage.sync(leader, 1, {leader: b"L2", follower: b"F2"})
    assert stage.sync(follower, 1).synced.assignment == b"F2"


def test_a_third_member_makes_the_others_join_again() -> None:
    stage = Stage()
    leader, follower = stage.stable()
    third, third_join = stage.new_member()
    assert stage.state() is State.PREPARING
    assert stage.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.sync(follower, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    stage.join(leader)
    assert third_join.waits
    stage.join(follower)
    assert third_join.joined.generation_id == 2
    assert third_join.joined.leader == leader
    assert stage.heartbeat(leader, 2) is ErrorCode.NONE
    assert stage.heartbeat(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    stage.share_out([leader, follower, third])


def test_members_that_do_not_come_back_in_time_are_out() -> None:
    stage = Stage()
    leader, follower = stage.stable(rebalance_ms=30_000, session_ms=100_000)
    third, third_join = stage.new_member(rebalance_ms=30_000)
    stage.join(follower, rebalance_ms=30_000)
    stage.advance(29_999)
    assert third_join.waits
    stage.advance(1)
    assert third_join.joined.generation_id == 2
    assert third_join.joined.leader == follower, "the leader changed, for it was not there"
    assert set(stage.group.members) == {follower, third}
    assert stage.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_more_members() -> None:
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = stage.new_member(rebalance_ms=8_000)
    stage.advance(2_000)
    _, second = stage.new_member(rebalance_ms=8_000)
    stage.advance(2_000)
    assert first.waits
    stage.advance(2_000)
    assert first.joined.generation_id == second.joined.generation_id == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = stage.new_member(rebalance_ms=7_000)
    for _ in range(6):
        stage.advance(1_000)
        stage.new_member(rebalance_ms=7_000)
    assert first.waits
    stage.advance(1_000)
    assert len(first.joined.members) == 7


def test_the_first_rebalance_goes_on_when_an_id_that_was_given_out_is_forgotten() -> None:
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=10_000))
    stage.join(session_ms=6_000)
    _, join = stage.new_member()
    stage.advance(9_999)
    assert not stage.group.pending, "nobody came back with it"
    assert join.waits
    stage.advance(1)
    assert join.joined.generation_id == 1


def test_the_first_rebalance_goes_on_when_one_of_its_members_vanishes() -> None:
    delay_ms = NEW_MEMBER_TIMEOUT_MS + 100_000
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=delay_ms))
    _, vanished = stage.new_member(rebalance_ms=delay_ms)
    stage.advance(200_000)
    _, join = stage.new_member(rebalance_ms=delay_ms)
    stage.advance(delay_ms - 200_001)
    assert vanished.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert join.waits
    stage.advance(1)
    assert len(join.joined.members) == 1


def test_the_first_rebalance_ends_when_everybody_in_it_has_vanished() -> None:
    delay_ms = NEW_MEMBER_TIMEOUT_MS + 100_000
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=delay_ms))
    _, vanished = stage.new_member(rebalance_ms=delay_ms)
    stage.advance(delay_ms - 1)
    assert vanished.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.state() is State.PREPARING
    stage.advance(1)
    assert stage.state() is State.EMPTY


def test_the_first_rebalance_ends_when_everybody_in_it_has_left() -> None:
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=3_000))
    member, join = stage.new_member()
    assert stage.leave((member, None)) == [ErrorCode.NONE]
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    stage.advance(3_000)
    assert stage.state() is State.EMPTY


def test_a_member_that_is_silent_loses_its_place() -> None:
    stage = Stage()
    leader, follower = stage.stable(session_ms=10_000)
    stage.advance(6_000)
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    stage.advance(6_000)
    assert stage.state() is State.PREPARING
    assert set(stage.group.members) == {leader}
    assert stage.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert "session timeout" in stage.rebalances[-1]


def test_a_commit_counts_as_a_heartbeat() -> None:
    stage = Stage()
    (member,) = stage.stable(1, session_ms=10_000)
    stage.advance(6_000)
    stage.commit({("t", 0): 1}, member, 1)
    stage.advance(6_000)
    assert stage.state() is State.STABLE


def test_members_that_wait_for_an_answer_need_not_beat() -> None:
    stage = Stage()
    leader, follower = stage.stable(session_ms=6_000, rebalance_ms=300_000)
    join = stage.join(leader, session_ms=6_000, rebalance_ms=300_000)
    for _ in range(10):
        stage.advance(5_000)
        assert stage.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join.waits
    assert leader in stage.group.members


def test_a_new_member_that_vanishes_while_it_joins_is_forgotten() -> None:
    stage = Stage()
    (member,) = stage.stable(1, session_ms=1_000_000, rebalance_ms=1_000_000)
    vanished, join = stage.new_member(rebalance_ms=1_000_000)
    stage.advance(NEW_MEMBER_TIMEOUT_MS)
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(stage.group.members) == {member}
    assert vanished not in stage.group.members


def test_an_id_that_nobody_comes_back_with_is_forgotten() -> None:
    stage = Stage()
    given = stage.join(session_ms=10_000).joined.member_id
    stage.advance(10_000)
    assert stage.join(given).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    given = stage.join().joined.member_id
    join = stage.join(member)
    assert join.waits
    stage.join(given)
    assert len(join.joined.members) == 2


def test_members_that_never_ask_for_their_share_are_out() -> None:
    stage = Stage()
    (leader, _), (follower, _) = (
        stage.new_member(rebalance_ms=20_000, session_ms=100_000) for _ in range(2)
    )
    stage.advance(0)
    stage.sync(leader, 1, {})
    stage.advance(19_999)
    assert stage.state() is State.STABLE
    stage.advance(1)
    assert stage.state() is State.PREPARING
    assert set(stage.group.members) == {leader}
    assert follower in stage.rebalances[-1]


def test_the_last_one_to_leave_empties_the_group() -> None:
    stage = Stage()
    leader, follower = stage.stable()
    assert stage.leave((follower, None)) == [ErrorCode.NONE]
    assert stage.state() is State.PREPARING
    assert stage.leave((leader, None)) == [ErrorCode.NONE]
    assert stage.state() is State.EMPTY
    assert stage.group.generation == 2
    assert stage.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.sync(leader, 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_could_not_be_stored_as_empty_is_tried_again() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    stage.disk_is_full = True
    request = LeaveGroupRequest(group_id=GROUP, member_id=member)
    waiting, call = stage.call(version=2)
    stage.carry_out(stage.coordinator.classic.leave(request, call))
    assert waiting.waits
    assert stage.state() is State.PREPARING
    stage.disk_is_full = False
    stage.advance(5_000)
    assert stage.state() is State.EMPTY


def test_several_members_leave_in_one_request() -> None:
    stage = Stage()
    first, second, third = stage.stable(3)
    answers = stage.leave((first, None), ("stranger", None), (third, None), ("", "no-instance"))
    assert answers == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(stage.group.members) == {second}
    assert len(stage.rebalances) == 2, "one rebalance for both"


def test_old_clients_leave_one_by_one() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        waiting, call = stage.call(version=0)
        request = LeaveGroupRequest(group_id=GROUP, member_id=member)
        stage.carry_out(stage.coordinator.classic.leave(request, call))
        assert waiting.answer(LeaveGroupResponse).error_code == expected


def test_an_id_that_was_given_out_may_leave_without_disturbing_anybody() -> None:
    stage = Stage()
    stage.stable(1)
    given = stage.join().joined.member_id
    assert stage.leave((given, None)) == [ErrorCode.NONE]
    assert stage.state() is State.STABLE
    assert not stage.group.pending


def test_who_leaves_while_it_waits_is_answered() -> None:
    stage = Stage()
    first, _ = stage.stable(2)
    join = stage.join(first)
    stage.leave((first, None))
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_a_group_that_is_not_there() -> None:
    assert Stage().leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


# Joining again.


def test_a_follower_that_missed_the_answer_is_told_again() -> None:
    stage = Stage()
    _, follower = stage.stable()
    again = stage.join(follower).joined
    assert (again.generation_id, again.members) == (1, [])
    assert stage.state() is State.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    stage = Stage()
    leader, _ = stage.stable()
    assert stage.join(leader, reason="topics changed").waits
    assert stage.state() is State.PREPARING
    assert "topics changed" in stage.rebalances[-1]


def test_new_metadata_start_a_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.stable()
    join = stage.join(follower, protocols={"range": subscription("t", "u")})
    assert join.waits
    assert stage.join(leader).joined.generation_id == 2


def test_a_join_during_the_sharing_out_is_told_of_the_generation() -> None:
    stage = Stage()
    (leader, _), (follower, _) = stage.new_member(), stage.new_member()
    stage.advance(0)
    assert stage.state() is State.COMPLETING
    assert len(stage.join(leader).joined.members) == 2
    assert stage.join(follower).joined.generation_id == 1


def test_new_metadata_during_the_sharing_out_start_over() -> None:
    stage = Stage()
    (leader, _), (follower, _) = stage.new_member(), stage.new_member()
    stage.advance(0)
    assert stage.join(follower, protocols={"range": b"new"}).waits
    assert stage.state() is State.PREPARING
    assert stage.join(leader).joined.generation_id == 2


def test_those_who_wait_for_shares_are_sent_back_when_somebody_joins() -> None:
    stage = Stage()
    (_, _), (follower, _) = stage.new_member(), stage.new_member()
    stage.advance(0)
    waiting = stage.sync(follower, 1)
    stage.new_member()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    stage = Stage()
    leader, follower = stage.stable()
    first = stage.join(leader)
    second = stage.join(leader)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits
    stage.join(follower)
    assert second.joined.generation_id == 2


# Choice of the protocol.


def test_the_protocol_with_the_most_votes_among_the_common_ones_wins() -> None:
    stage = Stage()
    stage.new_member(protocols={"a": b"", "b": b"", "c": b""})
    stage.new_member(protocols={"b": b"", "c": b""})
    _, join = stage.new_member(protocols={"c": b"", "b": b"", "d": b""})
    stage.advance(0)
    assert join.joined.protocol_name == "b"


def test_a_cooperative_upgrade_changes_the_protocol() -> None:
    stage = Stage()
    old = {"range": subscription("t")}
    both = {"cooperative-sticky": subscription("t"), **old}
    leader, follower = stage.stable(protocols=old)
    stage.join(leader, protocols=both)
    answer = stage.join(follower, protocols=old)
    assert answer.joined.protocol_name == "range"
    stage.share_out([leader, follower])
    stage.join(follower, protocols=both)
    answer = stage.join(leader, protocols=both)
    assert answer.joined.protocol_name == "cooperative-sticky"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"sticky": b""}), ("consumer", {})],
)
def test_a_member_that_nobody_can_work_with_is_refused(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    stage = Stage()
    stage.stable(protocols={"range": b""})
    join = stage.join(protocol_type=protocol_type, protocols=protocols)
    assert join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"r": b""}), ("consumer", {})])
def test_a_group_needs_a_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    join = Stage().join(protocol_type=protocol_type, protocols=protocols)
    assert join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_emptied_group_may_change_its_protocol_type() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    stage.leave((member, None))
    _, join = stage.new_member(protocol_type="connect", protocols={"default": b""})
    stage.advance(0)
    assert join.joined.protocol_type == "connect"
    assert join.joined.generation_id == 3


def test_sync_checks_the_protocol_that_the_member_believes_in() -> None:
    stage = Stage()
    leader, _ = stage.stable()
    assert stage.sync(leader, 1, protocol_type="consumer", protocol_name="range").synced
    sync = stage.sync(leader, 1, protocol_type="connect")
    assert sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sync = stage.sync(leader, 1, protocol_name="sticky")
    assert sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Limits and refusals.


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_of_the_limits_is_refused(session_ms: int) -> None:
    assert Stage().join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name() -> None:
    stage = Stage()
    assert stage.join(group="").error is ErrorCode.INVALID_GROUP_ID
    assert stage.sync("m", 1, group="").error is ErrorCode.INVALID_GROUP_ID
    assert stage.heartbeat("m", 1, group="") is ErrorCode.INVALID_GROUP_ID
    waiting, call = stage.call()
    stage.carry_out(stage.coordinator.classic.leave(LeaveGroupRequest(group_id=""), call))
    assert waiting.error is ErrorCode.INVALID_GROUP_ID


def test_a_stranger_is_told_so() -> None:
    stage = Stage()
    assert stage.join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.sync("stranger", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    stage.stable()
    assert stage.join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.sync("stranger", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_is_illegal() -> None:
    stage = Stage()
    leader, _ = stage.stable()
    for generation in (0, 2, -1):
        assert stage.sync(leader, generation).error is ErrorCode.ILLEGAL_GENERATION
        assert stage.heartbeat(leader, generation) is ErrorCode.ILLEGAL_GENERATION


def test_a_full_group_takes_nobody_in() -> None:
    stage = Stage(GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2))
    leader, follower = stage.stable(2)
    assert stage.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.join(version=0).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    stage.join(leader)
    assert stage.join(follower).joined.generation_id == 2


def test_a_group_above_a_lowered_limit_shrinks_to_it() -> None:
    stage = Stage()
    members = stage.stable(3)
    stage.settings = GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2)
    stage.restart()
    assert stage.state() is State.PREPARING
    joins = [stage.join(member) for member in members]
    assert joins[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joins[0].joined.generation_id == joins[1].joined.generation_id == 2


def test_an_endless_client_id_makes_no_endless_member_id() -> None:
    stage = Stage()
    _, call = stage.call()
    waiting, _ = stage.call()
    call = call._replace(token=waiting, client_id="c" * 32_767)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    stage.carry_out(stage.coordinator.classic.join(request, call))
    assert waiting.joined.member_id == "c" * 255 + "-001"

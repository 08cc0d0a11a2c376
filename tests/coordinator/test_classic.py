"""Members join, sync, beat and leave."""

from __future__ import annotations

import pytest
from tests.coordinator.harness import GROUP, Harness, subscription

from headrace.coordinator.settings import NEW_MEMBER_TIMEOUT_MS, GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.errors import ErrorCode


def test_a_new_member_is_told_its_id_first() -> None:
    harness = Harness()
    answer = harness.join().joined
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-001"
    assert not harness.group.members
    again = harness.join(answer.member_id)
    assert again.waits
    harness.advance(0)
    assert again.joined.generation_id == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_clients_join_without_knowing_their_id(version: int) -> None:
    harness = Harness()
    join = harness.join(version=version, rebalance_ms=-1)
    harness.advance(0)
    assert join.joined.generation_id == 1
    assert join.joined.leader == join.joined.member_id
    (member,) = harness.group.members.values()
    assert member.rebalance_timeout_ms == member.session_timeout_ms


def test_the_leader_learns_who_joined_and_the_others_do_not() -> None:
    harness = Harness()
    first, first_join = harness.new_member(protocols={"range": b"one"})
    second, second_join = harness.new_member(protocols={"range": b"two"})
    harness.advance(0)
    leader, follower = first_join.joined, second_join.joined
    assert (leader.leader, follower.leader) == (first, first)
    assert {m.member_id: m.metadata for m in leader.members} == {first: b"one", second: b"two"}
    assert follower.members == []
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")
    assert leader.generation_id == follower.generation_id == 1


def test_shares_reach_followers_when_the_leader_has_brought_them() -> None:
    harness = Harness()
    (leader, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    waiting = harness.sync(follower, 1)
    assert waiting.waits
    assert harness.state() is State.COMPLETING
    harness.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert waiting.synced.assignment == b"F"
    assert harness.state() is State.STABLE
    assert harness.sync(follower, 1).synced.assignment == b"F"


def test_a_member_without_a_share_gets_an_empty_one() -> None:
    harness = Harness()
    (leader, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    harness.sync(leader, 1, {leader: b"L", "stranger": b"S"})
    assert harness.sync(follower, 1).synced.assignment == b""


def test_shares_are_not_told_before_they_are_stored() -> None:
    harness = Harness()
    (leader, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    waiting = harness.sync(follower, 1)
    harness.disk_is_full = True
    harness.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert waiting.waits
    assert harness.state() is State.COMPLETING
    harness.disk_is_full = False
    harness.sync(leader, 1, {leader: b"L2", follower: b"F2"})
    assert harness.sync(follower, 1).synced.assignment == b"F2"


def test_a_third_member_makes_the_others_join_again() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    third, third_join = harness.new_member()
    assert harness.state() is State.PREPARING
    assert harness.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.sync(follower, 1).error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.join(leader)
    assert third_join.waits
    harness.join(follower)
    assert third_join.joined.generation_id == 2
    assert third_join.joined.leader == leader
    assert harness.heartbeat(leader, 2) is ErrorCode.NONE
    assert harness.heartbeat(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    harness.share_out([leader, follower, third])


def test_members_that_do_not_come_back_in_time_are_out() -> None:
    harness = Harness()
    leader, follower = harness.stable(rebalance_ms=30_000, session_ms=100_000)
    third, third_join = harness.new_member(rebalance_ms=30_000)
    harness.join(follower, rebalance_ms=30_000)
    harness.advance(29_999)
    assert third_join.waits
    harness.advance(1)
    assert third_join.joined.generation_id == 2
    assert third_join.joined.leader == follower, "the leader changed, for it was not there"
    assert set(harness.group.members) == {follower, third}
    assert harness.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_more_members() -> None:
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = harness.new_member(rebalance_ms=8_000)
    harness.advance(2_000)
    _, second = harness.new_member(rebalance_ms=8_000)
    harness.advance(2_000)
    assert first.waits
    harness.advance(2_000)
    assert first.joined.generation_id == second.joined.generation_id == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    _, first = harness.new_member(rebalance_ms=7_000)
    for _ in range(6):
        harness.advance(1_000)
        harness.new_member(rebalance_ms=7_000)
    assert first.waits
    harness.advance(1_000)
    assert len(first.joined.members) == 7


def test_the_first_rebalance_goes_on_when_an_id_that_was_given_out_is_forgotten() -> None:
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=10_000))
    harness.join(session_ms=6_000)
    _, join = harness.new_member()
    harness.advance(9_999)
    assert not harness.group.pending, "nobody came back with it"
    assert join.waits
    harness.advance(1)
    assert join.joined.generation_id == 1


def test_the_first_rebalance_goes_on_when_one_of_its_members_vanishes() -> None:
    delay_ms = NEW_MEMBER_TIMEOUT_MS + 100_000
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=delay_ms))
    _, vanished = harness.new_member(rebalance_ms=delay_ms)
    harness.advance(200_000)
    _, join = harness.new_member(rebalance_ms=delay_ms)
    harness.advance(delay_ms - 200_001)
    assert vanished.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert join.waits
    harness.advance(1)
    assert len(join.joined.members) == 1


def test_the_first_rebalance_ends_when_everybody_in_it_has_vanished() -> None:
    delay_ms = NEW_MEMBER_TIMEOUT_MS + 100_000
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=delay_ms))
    _, vanished = harness.new_member(rebalance_ms=delay_ms)
    harness.advance(delay_ms - 1)
    assert vanished.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.state() is State.PREPARING
    harness.advance(1)
    assert harness.state() is State.EMPTY


def test_the_first_rebalance_ends_when_everybody_in_it_has_left() -> None:
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=3_000))
    member, join = harness.new_member()
    assert harness.leave((member, None)) == [ErrorCode.NONE]
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(3_000)
    assert harness.state() is State.EMPTY


def test_a_member_that_is_silent_loses_its_place() -> None:
    harness = Harness()
    leader, follower = harness.stable(session_ms=10_000)
    harness.advance(6_000)
    assert harness.heartbeat(leader, 1) is ErrorCode.NONE
    harness.advance(6_000)
    assert harness.state() is State.PREPARING
    assert set(harness.group.members) == {leader}
    assert harness.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert "session timeout" in harness.rebalances[-1]


def test_a_commit_counts_as_a_heartbeat() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=10_000)
    harness.advance(6_000)
    harness.commit({("t", 0): 1}, member, 1)
    harness.advance(6_000)
    assert harness.state() is State.STABLE


def test_members_that_wait_for_an_answer_need_not_beat() -> None:
    harness = Harness()
    leader, follower = harness.stable(session_ms=6_000, rebalance_ms=300_000)
    join = harness.join(leader, session_ms=6_000, rebalance_ms=300_000)
    for _ in range(10):
        harness.advance(5_000)
        assert harness.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join.waits
    assert leader in harness.group.members


def test_a_new_member_that_vanishes_while_it_joins_is_forgotten() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=1_000_000, rebalance_ms=1_000_000)
    vanished, join = harness.new_member(rebalance_ms=1_000_000)
    harness.advance(NEW_MEMBER_TIMEOUT_MS)
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(harness.group.members) == {member}
    assert vanished not in harness.group.members


def test_an_id_that_nobody_comes_back_with_is_forgotten() -> None:
    harness = Harness()
    given = harness.join(session_ms=10_000).joined.member_id
    harness.advance(10_000)
    assert harness.join(given).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    given = harness.join().joined.member_id
    join = harness.join(member)
    assert join.waits
    harness.join(given)
    assert len(join.joined.members) == 2


def test_members_that_never_ask_for_their_share_are_out() -> None:
    harness = Harness()
    (leader, _), (follower, _) = (
        harness.new_member(rebalance_ms=20_000, session_ms=100_000) for _ in range(2)
    )
    harness.advance(0)
    harness.sync(leader, 1, {})
    harness.advance(19_999)
    assert harness.state() is State.STABLE
    harness.advance(1)
    assert harness.state() is State.PREPARING
    assert set(harness.group.members) == {leader}
    assert follower in harness.rebalances[-1]


def test_the_last_one_to_leave_empties_the_group() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    assert harness.leave((follower, None)) == [ErrorCode.NONE]
    assert harness.state() is State.PREPARING
    assert harness.leave((leader, None)) == [ErrorCode.NONE]
    assert harness.state() is State.EMPTY
    assert harness.group.generation == 2
    assert harness.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync(leader, 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_could_not_be_stored_as_empty_is_tried_again() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.disk_is_full = True
    request = LeaveGroupRequest(group_id=GROUP, member_id=member)
    waiting, call = harness.call(version=2)
    harness.carry_out(harness.coordinator.classic.leave(request, call))
    assert waiting.waits
    assert harness.state() is State.PREPARING
    harness.disk_is_full = False
    harness.advance(5_000)
    assert harness.state() is State.EMPTY


def test_several_members_leave_in_one_request() -> None:
    harness = Harness()
    first, second, third = harness.stable(3)
    answers = harness.leave((first, None), ("stranger", None), (third, None), ("", "no-instance"))
    assert answers == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(harness.group.members) == {second}
    assert len(harness.rebalances) == 2, "one rebalance for both"


def test_old_clients_leave_one_by_one() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        waiting, call = harness.call(version=0)
        request = LeaveGroupRequest(group_id=GROUP, member_id=member)
        harness.carry_out(harness.coordinator.classic.leave(request, call))
        assert waiting.answer(LeaveGroupResponse).error_code == expected


def test_an_id_that_was_given_out_may_leave_without_disturbing_anybody() -> None:
    harness = Harness()
    harness.stable(1)
    given = harness.join().joined.member_id
    assert harness.leave((given, None)) == [ErrorCode.NONE]
    assert harness.state() is State.STABLE
    assert not harness.group.pending


def test_who_leaves_while_it_waits_is_answered() -> None:
    harness = Harness()
    first, _ = harness.stable(2)
    join = harness.join(first)
    harness.leave((first, None))
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_a_group_that_is_not_there() -> None:
    assert Harness().leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


# Joining again.


def test_a_follower_that_missed_the_answer_is_told_again() -> None:
    harness = Harness()
    _, follower = harness.stable()
    again = harness.join(follower).joined
    assert (again.generation_id, again.members) == (1, [])
    assert harness.state() is State.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    harness = Harness()
    leader, _ = harness.stable()
    assert harness.join(leader, reason="topics changed").waits
    assert harness.state() is State.PREPARING
    assert "topics changed" in harness.rebalances[-1]


def test_new_metadata_start_a_rebalance() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    join = harness.join(follower, protocols={"range": subscription("t", "u")})
    assert join.waits
    assert harness.join(leader).joined.generation_id == 2


def test_a_join_during_the_sharing_out_is_told_of_the_generation() -> None:
    harness = Harness()
    (leader, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    assert harness.state() is State.COMPLETING
    assert len(harness.join(leader).joined.members) == 2
    assert harness.join(follower).joined.generation_id == 1


def test_new_metadata_during_the_sharing_out_start_over() -> None:
    harness = Harness()
    (leader, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    assert harness.join(follower, protocols={"range": b"new"}).waits
    assert harness.state() is State.PREPARING
    assert harness.join(leader).joined.generation_id == 2


def test_those_who_wait_for_shares_are_sent_back_when_somebody_joins() -> None:
    harness = Harness()
    (_, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    waiting = harness.sync(follower, 1)
    harness.new_member()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    first = harness.join(leader)
    second = harness.join(leader)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits
    harness.join(follower)
    assert second.joined.generation_id == 2


# Choice of the protocol.


def test_the_protocol_with_the_most_votes_among_the_common_ones_wins() -> None:
    harness = Harness()
    harness.new_member(protocols={"a": b"", "b": b"", "c": b""})
    harness.new_member(protocols={"b": b"", "c": b""})
    _, join = harness.new_member(protocols={"c": b"", "b": b"", "d": b""})
    harness.advance(0)
    assert join.joined.protocol_name == "b"


def test_a_cooperative_upgrade_changes_the_protocol() -> None:
    harness = Harness()
    old = {"range": subscription("t")}
    both = {"cooperative-sticky": subscription("t"), **old}
    leader, follower = harness.stable(protocols=old)
    harness.join(leader, protocols=both)
    answer = harness.join(follower, protocols=old)
    assert answer.joined.protocol_name == "range"
    harness.share_out([leader, follower])
    harness.join(follower, protocols=both)
    answer = harness.join(leader, protocols=both)
    assert answer.joined.protocol_name == "cooperative-sticky"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"sticky": b""}), ("consumer", {})],
)
def test_a_member_that_nobody_can_work_with_is_refused(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    harness = Harness()
    harness.stable(protocols={"range": b""})
    join = harness.join(protocol_type=protocol_type, protocols=protocols)
    assert join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"r": b""}), ("consumer", {})])
def test_a_group_needs_a_protocol(protocol_type: str, protocols: dict[str, bytes]) -> None:
    join = Harness().join(protocol_type=protocol_type, protocols=protocols)
    assert join.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_emptied_group_may_change_its_protocol_type() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.leave((member, None))
    _, join = harness.new_member(protocol_type="connect", protocols={"default": b""})
    harness.advance(0)
    assert join.joined.protocol_type == "connect"
    assert join.joined.generation_id == 3


def test_sync_checks_the_protocol_that_the_member_believes_in() -> None:
    harness = Harness()
    leader, _ = harness.stable()
    assert harness.sync(leader, 1, protocol_type="consumer", protocol_name="range").synced
    sync = harness.sync(leader, 1, protocol_type="connect")
    assert sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sync = harness.sync(leader, 1, protocol_name="sticky")
    assert sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Limits and refusals.


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_of_the_limits_is_refused(session_ms: int) -> None:
    assert Harness().join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name() -> None:
    harness = Harness()
    assert harness.join(group="").error is ErrorCode.INVALID_GROUP_ID
    assert harness.sync("m", 1, group="").error is ErrorCode.INVALID_GROUP_ID
    assert harness.heartbeat("m", 1, group="") is ErrorCode.INVALID_GROUP_ID
    waiting, call = harness.call()
    harness.carry_out(harness.coordinator.classic.leave(LeaveGroupRequest(group_id=""), call))
    assert waiting.error is ErrorCode.INVALID_GROUP_ID


def test_a_stranger_is_told_so() -> None:
    harness = Harness()
    assert harness.join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync("stranger", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.stable()
    assert harness.join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync("stranger", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_is_illegal() -> None:
    harness = Harness()
    leader, _ = harness.stable()
    for generation in (0, 2, -1):
        assert harness.sync(leader, generation).error is ErrorCode.ILLEGAL_GENERATION
        assert harness.heartbeat(leader, generation) is ErrorCode.ILLEGAL_GENERATION


def test_a_full_group_takes_nobody_in() -> None:
    harness = Harness(GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2))
    leader, follower = harness.stable(2)
    assert harness.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.join(version=0).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.join(leader)
    assert harness.join(follower).joined.generation_id == 2


def test_a_group_above_a_lowered_limit_shrinks_to_it() -> None:
    harness = Harness()
    members = harness.stable(3)
    harness.settings = GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2)
    harness.restart()
    assert harness.state() is State.PREPARING
    joins = [harness.join(member) for member in members]
    assert joins[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joins[0].joined.generation_id == joins[1].joined.generation_id == 2


def test_an_endless_client_id_makes_no_endless_member_id() -> None:
    harness = Harness()
    _, call = harness.call()
    waiting, _ = harness.call()
    call = call._replace(token=waiting, client_id="c" * 32_767)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    harness.carry_out(harness.coordinator.classic.join(request, call))
    assert waiting.joined.member_id == "c" * 255 + "-001"

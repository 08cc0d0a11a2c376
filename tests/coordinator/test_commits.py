"""Offsets are committed, fetched, deleted and expire."""

from __future__ import annotations

import pytest
from tests.coordinator.stage import GROUP, Stage, subscription

from headrace.coordinator.effects import Result
from headrace.coordinator.records import Commit, OffsetChange
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.errors import ErrorCode

RETENTION_MS = GroupSettings().offsets_retention_ms


def expire(stage: Stage) -> None:
    for result in stage.coordinator.expire(stage.now):
        stage.carry_out(result)


def delete(stage: Stage, topic: str, partition: int = 0) -> OffsetDeleteResponse:
    waiting, call = stage.call(0)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
        ],
    )
    stage.carry_out(stage.coordinator.commits.delete(request, call))
    return waiting.answer(OffsetDeleteResponse)


def test_what_is_committed_comes_back_unchanged() -> None:
    stage = Stage()
    assert stage.commit({("t", 3): 42}, metadata="né\x00☃", leader_epoch=7) == [ErrorCode.NONE]
    (found,) = stage.fetch("t", 3)
    assert (found.committed_offset, found.committed_leader_epoch) == (42, 7)
    assert found.metadata == "né\x00☃"
    assert found.error_code == ErrorCode.NONE


def test_nothing_committed_is_minus_one() -> None:
    stage = Stage()
    for group in ("nobody", GROUP):
        (found,) = stage.fetch("t", group=group)
        assert (found.committed_offset, found.committed_leader_epoch) == (-1, -1)
        assert (found.metadata, found.error_code) == ("", ErrorCode.NONE)
        stage.commit({("t", 1): 1})


def test_no_metadata_is_empty_metadata() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1}, metadata=None)
    assert stage.fetch("t")[0].metadata == ""


def test_all_offsets_of_a_group() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1, ("t", 1): 2, ("u", 5): 3})
    assert [(p.partition_index, p.committed_offset) for p in stage.fetch()] == [
        (0, 1),
        (1, 2),
        (5, 3),
    ]
    assert stage.fetch(group="nobody") == []


def test_a_later_commit_wins_even_if_it_goes_back() -> None:
    stage = Stage()
    stage.commit({("t", 0): 9})
    stage.commit({("t", 0): 4})
    assert stage.fetch("t")[0].committed_offset == 4


def test_metadata_that_are_too_long_are_refused_alone() -> None:
    stage = Stage(GroupSettings(offset_metadata_bytes_max=3))
    assert stage.commit({("t", 0): 1}, metadata="abcd") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert stage.committed("t") is None
    assert stage.commit({("t", 0): 1}, metadata="abc") == [ErrorCode.NONE]


def test_members_commit_in_their_generation_only() -> None:
    stage = Stage()
    leader, _ = stage.stable()
    offsets = {("t", 0): 1}
    assert stage.commit(offsets, leader, 1) == [ErrorCode.NONE]
    assert stage.commit(offsets, leader, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert stage.commit(offsets, leader, 2) == [ErrorCode.ILLEGAL_GENERATION]
    assert stage.commit(offsets, "stranger", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.commit(offsets) == [ErrorCode.UNKNOWN_MEMBER_ID], "not without a member's id"


def test_commits_while_the_group_rebalances() -> None:
    stage = Stage()
    leader, follower = stage.stable()
    stage.join(leader)
    assert stage.state() is State.PREPARING
    assert stage.commit({("t", 0): 5}, follower, 1) == [ErrorCode.NONE], "what it has done so far"
    stage.join(follower)
    assert stage.state() is State.COMPLETING
    assert stage.commit({("t", 0): 6}, follower, 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert stage.commit({("t", 0): 6}, follower, 2) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert stage.fetch("t")[0].committed_offset == 5


@pytest.mark.parametrize(
    ("version", "expected"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_generation_of_a_group_that_is_not_there(version: int, expected: ErrorCode) -> None:
    assert Stage().commit({("t", 0): 1}, "m", 3, version=version) == [expected]


def test_a_group_without_members_only_stores() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1})
    assert stage.state() is State.EMPTY
    assert stage.group.protocol_type is None
    assert stage.commit({("t", 0): 2}) == [ErrorCode.NONE]


# Deleting.


def test_offsets_of_a_topic_that_is_not_consumed_can_be_deleted() -> None:
    stage = Stage()
    (member,) = stage.stable(1, protocols={"range": subscription("t")})
    stage.commit({("t", 0): 1, ("old", 0): 2}, member, 1)
    response = delete(stage, "t")
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    response = delete(stage, "old")
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert stage.committed("old") is None
    assert stage.committed("t") is not None
    assert stage.log[-1][1] is None, "by a tombstone"
    assert delete(stage, "never").topics[0].partitions[0].error_code == ErrorCode.NONE


def test_offsets_of_other_protocols_can_be_deleted_when_the_group_is_empty() -> None:
    stage = Stage()
    (member,) = stage.stable(1, protocol_type="connect", protocols={"default": b""})
    stage.commit({("t", 0): 1}, member, 1)
    assert delete(stage, "t").error_code == ErrorCode.NON_EMPTY_GROUP
    stage.leave((member, None))
    assert delete(stage, "t").error_code == ErrorCode.NONE
    assert stage.committed("t") is None


def test_a_consumer_group_with_unreadable_subscriptions_keeps_its_offsets() -> None:
    stage = Stage()
    (member,) = stage.stable(1, protocols={"custom": b"\xff\xff\xff"})
    stage.commit({("t", 0): 1}, member, 1)
    response = delete(stage, "t")
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    assert delete(Stage(), "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    stage = Stage()
    waiting, call = stage.call()
    stage.carry_out(stage.coordinator.commits.delete(OffsetDeleteRequest(group_id=""), call))
    assert waiting.error is ErrorCode.INVALID_GROUP_ID


def test_the_offsets_of_a_deleted_topic_are_forgotten_in_every_group() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1, ("u", 0): 2}, group="one")
    stage.commit({("t", 1): 3}, group="two")
    changes = stage.coordinator.commits.forget_topic("t")
    assert changes == [OffsetChange("one", "t", 0, None), OffsetChange("two", "t", 1, None)]


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    stage.commit({("t", 0): 1, ("u", 1): 1}, member, 1)
    assert stage.coordinator.delete(GROUP)[0] is ErrorCode.NON_EMPTY_GROUP
    stage.leave((member, None))
    error, records = stage.coordinator.delete(GROUP)
    assert error is ErrorCode.NONE
    assert len(records) == 3
    for change in records:
        stage.coordinator.replay(change)
    assert GROUP not in stage.coordinator.groups
    assert stage.fetch() == []
    assert stage.coordinator.delete(GROUP)[0] is ErrorCode.GROUP_ID_NOT_FOUND


# Expiry.


def test_offsets_of_an_empty_group_expire_after_the_last_member_left() -> None:
    stage = Stage()
    (member,) = stage.stable(1, session_ms=1_800_000)
    stage.commit({("t", 0): 1}, member, 1)
    stage.advance(1_000_000)
    stage.leave((member, None))
    stage.advance(RETENTION_MS - 1)
    expire(stage)
    assert stage.committed("t") is not None
    stage.advance(1)
    expire(stage)
    assert stage.committed("t") is None
    assert GROUP not in stage.coordinator.groups, "nothing is left of it"
    assert GROUP not in stage.recovered().groups


def test_offsets_of_a_group_that_only_stores_expire_one_by_one() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1})
    stage.advance(1000)
    stage.commit({("t", 1): 1})
    stage.advance(RETENTION_MS - 1000)
    expire(stage)
    assert stage.committed("t", 0) is None
    assert stage.committed("t", 1) is not None
    assert GROUP in stage.coordinator.groups


def test_a_live_group_keeps_what_it_consumes() -> None:
    stage = Stage()
    (member,) = stage.stable(1, session_ms=1_800_000, protocols={"range": subscription("t")})
    stage.commit({("t", 0): 1, ("old", 0): 1}, member, 1)
    for _ in range(RETENTION_MS // 1_000_000 + 1):
        stage.advance(1_000_000)
        assert stage.heartbeat(member, 1) is ErrorCode.NONE
    expire(stage)
    assert stage.committed("t") is not None
    assert stage.committed("old") is None


def test_nothing_expires_while_the_members_cannot_be_understood() -> None:
    stage = Stage()
    (member,) = stage.stable(1, protocol_type="connect", protocols={"default": b""})
    stage.commit({("t", 0): 1}, member, 1)
    assert not list(stage.coordinator.expire(stage.now._replace(wall_ms=stage.now_ms * 2)))


def test_a_client_may_ask_for_its_own_retention() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1}, version=2, retention_ms=5_000)
    stage.restart()
    stage.advance(4_999)
    expire(stage)
    assert stage.committed("t") is not None
    stage.advance(1)
    expire(stage)
    assert stage.committed("t") is None


def test_an_endless_retention_stays_a_timestamp() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1}, version=2, retention_ms=2**63 - 1)
    commit = stage.committed("t")
    assert commit is not None
    assert commit.expire_timestamp_ms == 2**63 - 1


def test_an_empty_group_that_never_stored_anything_goes() -> None:
    stage = Stage()
    stage.join()
    expire(stage)
    assert GROUP in stage.coordinator.groups, "its member may still come back"
    stage.advance(10_000)
    expire(stage)
    assert GROUP not in stage.coordinator.groups


# Transactions in the log.


def test_an_offset_in_an_open_transaction_is_unstable() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1})
    offsets = stage.coordinator.offsets
    offsets.replay(OffsetChange(GROUP, "t", 0, Commit(9, -1, "", 0)), 77)
    (found,) = stage.fetch("t", require_stable=True)
    assert found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert found.committed_offset == -1
    assert stage.fetch("t")[0].committed_offset == 1
    offsets.end_transaction(77, committed=True)
    assert stage.fetch("t", require_stable=True)[0].committed_offset == 9


def pending(stage: Stage) -> None:
    """Let an open transaction hold an offset of a partition back that has none."""
    change = OffsetChange(GROUP, "t", 1, Commit(9, -1, "", 0))
    stage.coordinator.replay(change, 77)


def test_a_deleted_group_does_not_come_back_with_a_transaction() -> None:
    stage = Stage()
    stage.commit({("t", 0): 1})
    pending(stage)
    error, records = stage.coordinator.delete(GROUP)
    assert error is ErrorCode.NONE
    stage.carry_out(Result(records=records))
    stage.coordinator.end_transaction(77, committed=True)
    assert GROUP not in stage.coordinator.groups
    assert stage.committed("t", 1) is None


def test_a_deleted_offset_does_not_come_back_with_a_transaction() -> None:
    stage = Stage()
    pending(stage)
    assert not delete(stage, "t", 1).error_code
    stage.coordinator.end_transaction(77, committed=True)
    assert stage.committed("t", 1) is None


def test_a_topic_made_again_does_not_inherit_offsets_of_a_transaction() -> None:
    stage = Stage()
    stage.commit({("u", 0): 1})
    pending(stage)
    stage.carry_out(Result(records=list(stage.coordinator.commits.forget_topic("t"))))
    stage.coordinator.end_transaction(77, committed=True)
    assert stage.committed("t", 1) is None
    assert stage.committed("u") is not None

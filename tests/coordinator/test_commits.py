"""Offsets are committed, fetched, deleted and expire."""

from __future__ import annotations

import pytest
from tests.coordinator.harness import GROUP, Harness, subscription

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


def expire(harness: Harness) -> None:
    for result in harness.coordinator.expire(harness.now):
        harness.carry_out(result)


def delete(harness: Harness, topic: str, partition: int = 0) -> OffsetDeleteResponse:
    waiting, call = harness.call(0)
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
            )
        ],
    )
    harness.carry_out(harness.coordinator.commits.delete(request, call))
    return waiting.answer(OffsetDeleteResponse)


def test_what_is_committed_comes_back_unchanged() -> None:
    harness = Harness()
    assert harness.commit({("t", 3): 42}, metadata="né\x00☃", leader_epoch=7) == [ErrorCode.NONE]
    (found,) = harness.fetch("t", 3)
    assert (found.committed_offset, found.committed_leader_epoch) == (42, 7)
    assert found.metadata == "né\x00☃"
    assert found.error_code == ErrorCode.NONE


def test_nothing_committed_is_minus_one() -> None:
    harness = Harness()
    for group in ("nobody", GROUP):
        (found,) = harness.fetch("t", group=group)
        assert (found.committed_offset, found.committed_leader_epoch) == (-1, -1)
        assert (found.metadata, found.error_code) == ("", ErrorCode.NONE)
        harness.commit({("t", 1): 1})


def test_no_metadata_is_empty_metadata() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1}, metadata=None)
    assert harness.fetch("t")[0].metadata == ""


def test_all_offsets_of_a_group() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1, ("t", 1): 2, ("u", 5): 3})
    assert [(p.partition_index, p.committed_offset) for p in harness.fetch()] == [
        (0, 1),
        (1, 2),
        (5, 3),
    ]
    assert harness.fetch(group="nobody") == []


def test_a_later_commit_wins_even_if_it_goes_back() -> None:
    harness = Harness()
    harness.commit({("t", 0): 9})
    harness.commit({("t", 0): 4})
    assert harness.fetch("t")[0].committed_offset == 4


def test_metadata_that_are_too_long_are_refused_alone() -> None:
    harness = Harness(GroupSettings(offset_metadata_bytes_max=3))
    assert harness.commit({("t", 0): 1}, metadata="abcd") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert harness.committed("t") is None
    assert harness.commit({("t", 0): 1}, metadata="abc") == [ErrorCode.NONE]


def test_members_commit_in_their_generation_only() -> None:
    harness = Harness()
    leader, _ = harness.stable()
    offsets = {("t", 0): 1}
    assert harness.commit(offsets, leader, 1) == [ErrorCode.NONE]
    assert harness.commit(offsets, leader, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit(offsets, leader, 2) == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit(offsets, "stranger", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.commit(offsets) == [ErrorCode.UNKNOWN_MEMBER_ID], "not without a member's id"


def test_commits_while_the_group_rebalances() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    harness.join(leader)
    assert harness.state() is State.PREPARING
    assert harness.commit({("t", 0): 5}, follower, 1) == [ErrorCode.NONE], "what it has done so far"
    harness.join(follower)
    assert harness.state() is State.COMPLETING
    assert harness.commit({("t", 0): 6}, follower, 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit({("t", 0): 6}, follower, 2) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert harness.fetch("t")[0].committed_offset == 5


@pytest.mark.parametrize(
    ("version", "expected"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_generation_of_a_group_that_is_not_there(version: int, expected: ErrorCode) -> None:
    assert Harness().commit({("t", 0): 1}, "m", 3, version=version) == [expected]


def test_a_group_without_members_only_stores() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    assert harness.state() is State.EMPTY
    assert harness.group.protocol_type is None
    assert harness.commit({("t", 0): 2}) == [ErrorCode.NONE]


# Deleting.


def test_offsets_of_a_topic_that_is_not_consumed_can_be_deleted() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocols={"range": subscription("t")})
    harness.commit({("t", 0): 1, ("old", 0): 2}, member, 1)
    response = delete(harness, "t")
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    response = delete(harness, "old")
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert harness.committed("old") is None
    assert harness.committed("t") is not None
    assert harness.log[-1][1] is None, "by a tombstone"
    assert delete(harness, "never").topics[0].partitions[0].error_code == ErrorCode.NONE


def test_offsets_of_other_protocols_can_be_deleted_when_the_group_is_empty() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocol_type="connect", protocols={"default": b""})
    harness.commit({("t", 0): 1}, member, 1)
    assert delete(harness, "t").error_code == ErrorCode.NON_EMPTY_GROUP
    harness.leave((member, None))
    assert delete(harness, "t").error_code == ErrorCode.NONE
    assert harness.committed("t") is None


def test_a_consumer_group_with_unreadable_subscriptions_keeps_its_offsets() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocols={"custom": b"\xff\xff\xff"})
    harness.commit({("t", 0): 1}, member, 1)
    response = delete(harness, "t")
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    assert delete(Harness(), "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    harness = Harness()
    waiting, call = harness.call()
    harness.carry_out(harness.coordinator.commits.delete(OffsetDeleteRequest(group_id=""), call))
    assert waiting.error is ErrorCode.INVALID_GROUP_ID


def test_the_offsets_of_a_deleted_topic_are_forgotten_in_every_group() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1, ("u", 0): 2}, group="one")
    harness.commit({("t", 1): 3}, group="two")
    changes = harness.coordinator.commits.forget_topic("t")
    assert changes == [OffsetChange("one", "t", 0, None), OffsetChange("two", "t", 1, None)]


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.commit({("t", 0): 1, ("u", 1): 1}, member, 1)
    assert harness.coordinator.delete(GROUP)[0] is ErrorCode.NON_EMPTY_GROUP
    harness.leave((member, None))
    error, records = harness.coordinator.delete(GROUP)
    assert error is ErrorCode.NONE
    assert len(records) == 3
    for change in records:
        harness.coordinator.replay(change)
    assert GROUP not in harness.coordinator.groups
    assert harness.fetch() == []
    assert harness.coordinator.delete(GROUP)[0] is ErrorCode.GROUP_ID_NOT_FOUND


# Expiry.


def test_offsets_of_an_empty_group_expire_after_the_last_member_left() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=1_800_000)
    harness.commit({("t", 0): 1}, member, 1)
    harness.advance(1_000_000)
    harness.leave((member, None))
    harness.advance(RETENTION_MS - 1)
    expire(harness)
    assert harness.committed("t") is not None
    harness.advance(1)
    expire(harness)
    assert harness.committed("t") is None
    assert GROUP not in harness.coordinator.groups, "nothing is left of it"
    assert GROUP not in harness.recovered().groups


def test_offsets_of_a_group_that_only_stores_expire_one_by_one() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    harness.advance(1000)
    harness.commit({("t", 1): 1})
    harness.advance(RETENTION_MS - 1000)
    expire(harness)
    assert harness.committed("t", 0) is None
    assert harness.committed("t", 1) is not None
    assert GROUP in harness.coordinator.groups


def test_a_live_group_keeps_what_it_consumes() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=1_800_000, protocols={"range": subscription("t")})
    harness.commit({("t", 0): 1, ("old", 0): 1}, member, 1)
    for _ in range(RETENTION_MS // 1_000_000 + 1):
        harness.advance(1_000_000)
        assert harness.heartbeat(member, 1) is ErrorCode.NONE
    expire(harness)
    assert harness.committed("t") is not None
    assert harness.committed("old") is None


def test_nothing_expires_while_the_members_cannot_be_understood() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocol_type="connect", protocols={"default": b""})
    harness.commit({("t", 0): 1}, member, 1)
    assert not list(harness.coordinator.expire(harness.now._replace(wall_ms=harness.now_ms * 2)))


def test_a_client_may_ask_for_its_own_retention() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1}, version=2, retention_ms=5_000)
    harness.restart()
    harness.advance(4_999)
    expire(harness)
    assert harness.committed("t") is not None
    harness.advance(1)
    expire(harness)
    assert harness.committed("t") is None


def test_an_endless_retention_stays_a_timestamp() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1}, version=2, retention_ms=2**63 - 1)
    commit = harness.committed("t")
    assert commit is not None
    assert commit.expire_timestamp_ms == 2**63 - 1


def test_an_empty_group_that_never_stored_anything_goes() -> None:
    harness = Harness()
    harness.join()
    expire(harness)
    assert GROUP in harness.coordinator.groups, "its member may still come back"
    harness.advance(10_000)
    expire(harness)
    assert GROUP not in harness.coordinator.groups


# Transactions in the log.


def test_an_offset_in_an_open_transaction_is_unstable() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    offsets = harness.coordinator.offsets
    offsets.replay(OffsetChange(GROUP, "t", 0, Commit(9, -1, "", 0)), 77)
    (found,) = harness.fetch("t", require_stable=True)
    assert found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert found.committed_offset == -1
    assert harness.fetch("t")[0].committed_offset == 1
    offsets.end_transaction(77, committed=True)
    assert harness.fetch("t", require_stable=True)[0].committed_offset == 9


def pending(harness: Harness) -> None:
    """Let an open transaction hold an offset of a partition back that has none."""
    change = OffsetChange(GROUP, "t", 1, Commit(9, -1, "", 0))
    harness.coordinator.replay(change, 77)


def test_a_deleted_group_does_not_come_back_with_a_transaction() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    pending(harness)
    error, records = harness.coordinator.delete(GROUP)
    assert error is ErrorCode.NONE
    harness.carry_out(Result(records=records))
    harness.coordinator.end_transaction(77, committed=True)
    assert GROUP not in harness.coordinator.groups
    assert harness.committed("t", 1) is None


def test_a_deleted_offset_does_not_come_back_with_a_transaction() -> None:
    harness = Harness()
    pending(harness)
    assert not delete(harness, "t", 1).error_code
    harness.coordinator.end_transaction(77, committed=True)
    assert harness.committed("t", 1) is None


def test_a_topic_made_again_does_not_inherit_offsets_of_a_transaction() -> None:
    harness = Harness()
    harness.commit({("u", 0): 1})
    pending(harness)
    harness.carry_out(Result(records=list(harness.coordinator.commits.forget_topic("t"))))
    harness.coordinator.end_transaction(77, committed=True)
    assert harness.committed("t", 1) is None
    assert harness.committed("u") is not None

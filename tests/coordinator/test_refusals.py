"""Answers that became refusals because the log failed."""

from __future__ import annotations

import pytest

from headrace.coordinator.refusals import refused
from headrace.protocol.api.delete_groups import DeletableGroupResult
from headrace.protocol.api.heartbeat import HeartbeatResponse
from headrace.protocol.api.join_group import JoinGroupResponse
from headrace.protocol.api.leave_group import LeaveGroupResponse, MemberResponse
from headrace.protocol.api.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.api.offset_delete import OffsetDeleteResponse
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

FULL = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (
            JoinGroupResponse(member_id="m", generation_id=3, leader="m"),
            JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, member_id="m"),
        ),
        (
            SyncGroupResponse(assignment=b"secret"),
            SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
        ),
        (
            LeaveGroupResponse(members=[MemberResponse(member_id="m")]),
            LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
        ),
        (OffsetDeleteResponse(), OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)),
        (
            DeletableGroupResult(group_id="g"),
            DeletableGroupResult(group_id="g", error_code=ErrorCode.NOT_COORDINATOR),
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_refusal_tells_nothing_of_the_answer(answer: Message, refusal: Message) -> None:
    assert refused(answer, FULL) == refusal


@pytest.mark.parametrize(
    ("log_error", "expected"),
    [
        (FULL, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_commit_is_refused_for_what_would_have_been_stored(
    log_error: ErrorCode, expected: ErrorCode
) -> None:
    too_long = ErrorCode.OFFSET_METADATA_TOO_LARGE
    answer = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="t",
                partitions=[
                    OffsetCommitResponsePartition(partition_index=0),
                    OffsetCommitResponsePartition(partition_index=1, error_code=too_long),
                ],
            )
        ]
    )
    refusal = refused(answer, log_error)
    assert isinstance(refusal, OffsetCommitResponse)
    codes = [partition.error_code for partition in refusal.topics[0].partitions]
    assert codes == [expected, too_long]


def test_a_heartbeat_never_waits_for_the_log() -> None:
    with pytest.raises(TypeError, match="HeartbeatResponse"):
        refused(HeartbeatResponse(), FULL)

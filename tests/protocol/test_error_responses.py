"""An error response mirrors its request, or replaces a response that could not be stored."""

from __future__ import annotations

import pytest

from headrace.protocol.api import REQUESTS, RESPONSES
from headrace.protocol.api.delete_groups import DeletableGroupResult
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.join_group import JoinGroupResponse
from headrace.protocol.api.leave_group import LeaveGroupResponse, MemberResponse
from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headrace.protocol.api.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.api.offset_delete import OffsetDeleteResponse
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.codec import decode, encode
from headrace.protocol.error_responses import failed_response, refused
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message


def test_produce_fails_each_partition_by_its_index() -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=i) for i in (0, 3)]
            )
        ]
    )
    response = failed_response(request, ProduceResponse, 9, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert isinstance(response, ProduceResponse)
    (topic,) = response.responses
    assert topic.name == "t"
    assert [(p.index, p.error_code) for p in topic.partition_responses] == [
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]


def test_metadata_fails_each_topic_by_its_name() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response = failed_response(request, MetadataResponse, 9, ErrorCode.LEADER_NOT_AVAILABLE)
    assert isinstance(response, MetadataResponse)
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("t", ErrorCode.LEADER_NOT_AVAILABLE)
    ]


def test_a_top_level_error_is_set() -> None:
    response = failed_response(
        HeartbeatRequest(), HeartbeatResponse, 4, ErrorCode.REBALANCE_IN_PROGRESS
    )
    assert isinstance(response, HeartbeatResponse)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("key", sorted(REQUESTS))
def test_every_api_and_version_has_an_error_answer(key: int) -> None:
    request, response = REQUESTS[key], RESPONSES[key]
    for version in range(request.VERSIONS[0], request.VERSIONS[1] + 1):
        failed = failed_response(request(), response, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert decode(response, version, encode(failed, version)) is not None


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

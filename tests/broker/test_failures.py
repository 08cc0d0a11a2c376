"""An error answer mirrors its request and can be encoded in every version."""

from __future__ import annotations

import pytest

from headrace.broker.failures import failed_response
from headrace.protocol.api import REQUESTS, RESPONSES
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.codec import decode, encode
from headrace.protocol.errors import ErrorCode


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

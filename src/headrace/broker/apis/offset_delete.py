"""OffsetDelete (key 47), v0."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Call, Result
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message


@serves(OffsetDeleteRequest, 0, 0)
def offset_delete(node: Node, ctx: Context, request: OffsetDeleteRequest) -> Message | Pending:
    """Delete offsets of topics that no member consumes; responds when that is durable."""
    unknown = [topic for topic in request.topics if node.catalog.get(topic.name) is None]
    request.topics = [topic for topic in request.topics if node.catalog.get(topic.name)]

    def delete(coordinator: GroupCoordinator, call: Call) -> Result:
        result = coordinator.commits.delete(request, call)
        for reply in result.replies:
            response = reply.response
            assert isinstance(response, OffsetDeleteResponse)
            if not response.error_code:
                response.topics.extend(_unknown_topic(topic) for topic in unknown)
        return result

    return node.groups.serve(
        ctx, request.group_id, delete, lambda error: OffsetDeleteResponse(error_code=error)
    )


def _unknown_topic(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for partition in topic.partitions
        ],
    )

"""OffsetForLeaderEpoch (key 23), v2-4. v2: current leader epoch. v3: replica id. v4: flexible."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from headrace.protocol.errors import KafkaError


@serves(OffsetForLeaderEpochRequest, 2, 4)
def offset_for_leader_epoch(
    node: Node, ctx: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return where an epoch ended, so that a client notices a truncated log (KIP-320)."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(node, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(node: Node, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition)
    try:
        partition = node.partitions.find(topic, wanted.partition)
        partition.check(wanted.current_leader_epoch)
    except KafkaError as error:
        result.error_code = error.code
        return result
    result.leader_epoch, result.end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return result

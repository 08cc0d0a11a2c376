"""DescribeProducers (key 61), v0 (KIP-664)."""

from __future__ import annotations

from headrace.broker.apis.metadata import unknown_topic_error
from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@serves(DescribeProducersRequest, 0, 0)
def describe_producers(
    node: Node, ctx: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List the idempotent and transactional producers that partitions remember."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(node, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(node: Node, topic: str, index: int) -> PartitionResponse:
    partition = node.partitions.get(topic, index)
    error = unknown_topic_error(topic) if partition is None else partition.error
    if partition is None or error:
        return PartitionResponse(partition_index=index, error_code=error, error_message=error.text)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in partition.log.producers
        ],
    )

"""DescribeTopicPartitions (key 75), v0 (KIP-966).

Topics are listed by name, with a limited number of partitions per response; the cursor says where
the next request continues.
"""

from __future__ import annotations

from headrace.broker.apis.metadata import (
    TOPIC_OPERATIONS,
    describe_topic,
    unknown_topic_error,
)
from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.metadata import Topic
from headrace.protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.protocol.errors import ErrorCode


@serves(DescribeTopicPartitionsRequest, 0, 0)
def describe_topic_partitions(
    node: Node, ctx: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe topics by name, or all of them, up to a number of partitions."""
    names = {topic.name for topic in request.topics} or set(node.catalog.topics)
    first_topic, first_index = "", 0
    if request.cursor is not None:
        first_topic, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0:
            return _invalid(names)
    limit = node.settings.int("max.request.partition.size.limit")
    if request.response_partition_limit > 0:
        limit = min(limit, request.response_partition_limit)
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in sorted(name for name in names if name >= first_topic):
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = node.catalog.get(name)
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=unknown_topic_error(name), name=name
                )
            )
            continue
        begin = first_index if name == first_topic else 0
        end = min(begin + limit, topic.partitions)
        response.topics.append(_describe(node, topic, begin, end))
        limit -= max(end - begin, 0)
        if end < topic.partitions:
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _invalid(names: set[str]) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(names)
        ],
        next_cursor=None,
    )


def _describe(
    node: Node, topic: Topic, begin: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    described = describe_topic(node, topic, range(begin, end))
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replica_nodes,
                isr_nodes=partition.isr_nodes,
                # The only replica is always in sync, so no other was ever eligible.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=partition.offline_replicas,
            )
            for partition in described.partitions
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )

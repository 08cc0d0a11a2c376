"""DeleteRecords (key 21), v0-2. v1: quotas. v2: flexible.

The offset -1 means the high watermark. Readers stop seeing the records at once; the response leaves
when a crash cannot bring them back; the next retention run removes the files.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.metadata.topic_names import INTERNAL
from headrace.protocol.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.protocol.errors import ErrorCode, KafkaError

NO_LOW_WATERMARK = -1
# Means everything that readers can see.
HIGH_WATERMARK = -1


@serves(DeleteRecordsRequest, 0, 2)
async def delete_records(
    node: Node, ctx: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete all records before an offset, partition by partition."""
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=NO_LOW_WATERMARK
            )
            try:
                result.low_watermark = await _delete(
                    node, topic.name, wanted.partition_index, wanted.offset
                )
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    if any(not result.error_code for topic in topics for result in topic.partitions):
        await node.housekeeping.checkpoint()
    return DeleteRecordsResponse(topics=topics)


async def _delete(node: Node, topic: str, index: int, offset: int) -> int:
    """Delete records before an offset and return the log's new first offset."""
    partition = node.partitions.find(topic, index)
    if partition.error:
        raise KafkaError(partition.error)
    if topic in INTERNAL:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = partition.log
    if not log.config.deletes:
        # A compacted topic promises to keep the last record of every key.
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    if offset == HIGH_WATERMARK or offset > log.high_watermark:
        await partition.durable_end()
    return log.delete_records(offset)

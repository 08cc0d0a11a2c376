"""ListOffsets (key 2), v1-11. v2: isolation level. v4: leader epoch. v6: flexible. v7: max
timestamp (-3). v8: earliest local (-4). v9: latest tiered (-5). v10: timeout. v11: earliest
pending upload (-6).
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
# These do not depend on the end of a log.
FIRST = frozenset({EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
NO_TIMESTAMP = -1
NO_OFFSET = -1


@serves(ListOffsetsRequest, 1, 11)
async def list_offsets(
    node: Node, ctx: Context, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Find the offset of a timestamp, or the start or end of the log."""
    committed = request.isolation_level == READ_COMMITTED
    _start_syncs(node, request)
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            try:
                await _look_up(node, topic.name, wanted, committed, result)
            except KafkaError as error:
                result.error_code = error.code
            except OSError:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(result)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def _start_syncs(node: Node, request: ListOffsetsRequest) -> None:
    """Start the syncs that the partitions will wait for, so that they run concurrently."""
    for topic in request.topics:
        for wanted in topic.partitions:
            if wanted.timestamp in FIRST:
                continue
            partition = node.partitions.get(topic.name, wanted.partition_index)
            if partition is not None and partition.has_unsynced:
                partition.sync()


async def _look_up(
    node: Node,
    topic: str,
    wanted: ListOffsetsPartition,
    committed: bool,
    result: ListOffsetsPartitionResponse,
) -> None:
    partition = node.partitions.find(topic, wanted.partition_index)
    partition.check(wanted.current_leader_epoch)
    log = partition.log
    if wanted.timestamp not in FIRST:
        await partition.durable_end()
    limit = log.last_stable_offset if committed else log.high_watermark
    time = wanted.timestamp
    if time == LATEST:
        # Readers that start at 'latest' must not start after what is durable.
        found = (limit, NO_TIMESTAMP)
        epoch = partition.leader_epoch
    elif time in (EARLIEST, EARLIEST_LOCAL):
        found = (log.start_offset, NO_TIMESTAMP)
        epoch = log.epochs.epoch_for(log.start_offset)
    elif time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        found = (NO_OFFSET, NO_TIMESTAMP)  # there is no tiered storage
        epoch = -1
    elif time < MAX_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    else:
        # Finding a timestamp reads the log: cold data must not block the loop.
        search = log.max_timestamp_offset if time == MAX_TIMESTAMP else log.offset_for_timestamp
        arguments = () if time == MAX_TIMESTAMP else (time,)
        hit = await node.run_read(search, *arguments)
        if hit is None or hit[0] >= limit:
            found, epoch = (NO_OFFSET, NO_TIMESTAMP), -1
        else:
            found, epoch = (hit[0], hit[1]), hit[2]
    result.offset, result.timestamp = found
    result.leader_epoch = epoch

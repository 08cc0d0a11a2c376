"""Produce (key 0), v3-13, advertised from 0 (see below). v3: record batches v2, transactional id.
v5: log start offset. v7: zstd. v8: record errors. v9: flexible. v10: leader hints. v11: as v10.
v12: implicit transaction partitions (KIP-890). v13: topic ids.

Clients drop compression silently when Produce is not advertised from 0 (KAFKA-18659), so it is;
v0-2 are refused, as Apache Kafka 4 refuses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.broker.partition import Partition
from headrace.broker.pending import Pending
from headrace.broker.purgatory import Waiting
from headrace.broker.registry import handles
from headrace.broker.workers import WorkerError
from headrace.protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.batch import check_batch
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import codec_wanted
from headrace.storage.cleaner.recompress import recompress

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headrace.broker.context import Context
    from headrace.broker.node import Node

ACKS_ALL = -1
TOPIC_ID_VERSION = 13
# A batch up to this size is recompressed on the loop: handing it to a worker costs more.
INLINE_BYTES_MAX = 4096

# What an acks=all produce waits for: a partition, the offset behind its batch, and its result.
Target = tuple[Partition, int, PartitionProduceResponse]


class ProduceWaiting(Waiting):
    """An acks=all produce whose batches are written and not yet all durable."""

    __slots__ = ("_pending", "_response", "_targets")

    def __init__(
        self,
        targets: list[Target],
        response: ProduceResponse,
        pending: Pending,
    ) -> None:
        super().__init__()
        self._targets = targets
        self._response = response
        self._pending = pending

    def try_complete(self) -> bool:
        for partition, end_offset, result in self._targets:
            if partition.log.high_watermark < end_offset and not result.error_code:
                error = partition.error
                if not error:
                    return False
                refuse(result, error)
        self._pending.resolve(self._response)
        return True

    def expire(self) -> None:
        for partition, end_offset, result in self._targets:
            if partition.log.high_watermark < end_offset and not result.error_code:
                refuse(result, ErrorCode.REQUEST_TIMED_OUT)
        self._pending.resolve(self._response)


@handles(ProduceRequest, 3, 13, advertised_min=0)
def produce(
    node: Node, ctx: Context, request: ProduceRequest
) -> ProduceResponse | Pending | Awaitable[ProduceResponse | None] | None:
    """Append each partition's batch; answer when they are as durable as `acks` asks."""
    acks = request.acks
    now_ms = node.clock.now_ms()
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    targets: list[Target] = []
    unpacked: list[tuple[Partition, PartitionProduceData, PartitionProduceResponse]] = []
    topics = []
    for topic in request.topic_data:
        name = node.partitions.name_of(topic.topic_id) if by_id else topic.name
        results = []
        for data in topic.partition_data:
            result = PartitionProduceResponse(index=data.index)
            results.append(result)
            partition = node.partitions.get(name, data.index) if name is not None else None
            if partition is None:
                refuse(
                    result,
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                continue
            if partition.recompresses and data.records is not None:
                # The receive buffer is gone by the time a worker has done its part.
                data.records = memoryview(bytearray(data.records))
                unpacked.append((partition, data, result))
                continue
            end_offset = append(partition, data, acks, now_ms, result)
            if acks == ACKS_ALL and partition.log.high_watermark < end_offset:
                targets.append((partition, end_offset, result))
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=results
            )
        )
    response = ProduceResponse(responses=topics)
    if unpacked:
        return produce_recompressed(node, request, unpacked, targets, response)
    if targets:
        return park(node, request, targets, response, Pending(holds_line=False))
    return response if acks else None


def park(
    node: Node,
    request: ProduceRequest,
    targets: list[Target],
    response: ProduceResponse,
    pending: Pending,
) -> Pending:
    """Hold the answer until every target is durable; their syncs start at once."""
    waiting = ProduceWaiting(targets, response, pending)
    keys = [target[0] for target in targets]
    node.produces.park(waiting, keys, max(request.timeout_ms, 0))
    for partition in keys:
        partition.sync()
    return pending


async def produce_recompressed(
    node: Node,
    request: ProduceRequest,
    unpacked: list[tuple[Partition, PartitionProduceData, PartitionProduceResponse]],
    targets: list[Target],
    response: ProduceResponse,
) -> ProduceResponse | None:
    """Finish a produce some of whose batches the topic wants under another codec.

    On cancel, batches that were not appended by then never are; their client has no answer.
    """
    for partition, data, result in unpacked:
        try:
            data.records = await recompressed(node, partition, data.records)
        except KafkaError as refused:
            refuse(result, refused.code, refused.message)
            continue
        end_offset = append(partition, data, request.acks, node.clock.now_ms(), result)
        if request.acks == ACKS_ALL and partition.log.high_watermark < end_offset:
            targets.append((partition, end_offset, result))
    if targets:
        pending = park(node, request, targets, response, Pending())
        return cast(ProduceResponse, await pending.wait())
    return response if request.acks else None


async def recompressed(
    node: Node, partition: Partition, records: memoryview | None
) -> memoryview | None:
    """The batch under the topic's codec; large ones are repacked by a worker process."""
    if records is None:
        return None
    header = check_batch(records, 0, len(records))
    codec = codec_wanted(header, partition.log.config)
    if codec is None or header.size != len(records):
        return records
    if header.size <= INLINE_BYTES_MAX:
        return memoryview(recompress(records, codec))
    try:
        return memoryview(await node.workers.run(recompress, bytes(records), codec))
    except WorkerError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def append(
    partition: Partition,
    data: PartitionProduceData,
    acks: int,
    now_ms: int,
    result: PartitionProduceResponse,
) -> int:
    """Append one partition's batch, fill in its result, and return the offset behind it."""
    try:
        if acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, not -1, 0 or 1")
        error = partition.error
        if error:
            raise KafkaError(error)
        if acks == ACKS_ALL and partition.log.config.min_insync_replicas > 1:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "min.insync.replicas asks for more than the one replica that there is",
            )
        if partition.internal:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is the broker's own"
            )
        if data.records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
        info = partition.append(data.records, now_ms)
    except KafkaError as refused:
        refuse(result, refused.code, refused.message)
        return -1
    result.base_offset = info.base_offset
    result.log_append_time_ms = info.append_time_ms
    result.log_start_offset = info.start_offset
    return info.last_offset + 1


def refuse(result: PartitionProduceResponse, error: ErrorCode, message: str | None = None) -> None:
    """Make a partition's result an error."""
    result.error_code = error
    result.error_message = message or error.text
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1

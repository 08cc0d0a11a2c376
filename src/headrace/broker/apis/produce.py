"""Produce (key 0), v3-13, advertised from 0 (see below). v3: record batches v2, transactional id.
v5: log start offset. v7: zstd. v8: record errors. v9: flexible. v10: leader hints. v11: as v10.
v12: implicit transaction partitions (KIP-890). v13: topic ids.

Clients drop compression silently when Produce is not advertised from 0 (KAFKA-18659), so it is;
v0-2 are refused, as Apache Kafka 4 refuses them.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeAlias, cast

from headrace.broker.node import Node
from headrace.broker.partition import Partition
from headrace.broker.produce_templates import ACKS_ALL, ProduceTemplates
from headrace.broker.purgatory import Pending, SyncedResponse, SyncedTarget
from headrace.broker.registry import Context, serves
from headrace.broker.transactions_verification import TransactionVerification, is_transactional
from headrace.broker.worker_processes import WorkerError
from headrace.protocol.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    InvalidRecords,
    check_batch,
)
from headrace.protocol.compression import Codec
from headrace.protocol.error_responses import refuse_batch
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ProtocolError
from headrace.storage import codec_wanted
from headrace.storage.cleaner.batches import recompress
from headrace.storage.log.appending import check_keys

TOPIC_ID_VERSION = 13
ZSTD_VERSION = 7
# The records of an uncompressed batch up to this size are checked on the loop.
INLINE_BYTES_MAX = 8 * 1024
# The attributes' low byte within a batch.
CODEC_AT = ATTRIBUTES_AT + 1

# What an acks=all produce waits for.
Target = SyncedTarget[PartitionProduceResponse]
ProduceResult: TypeAlias = ProduceResponse | Pending | Awaitable[ProduceResponse | None] | None


def wants_response(request: ProduceRequest) -> bool:
    """Whether the producer reads a response: with acks=0 it does not."""
    return request.acks != 0


@serves(
    ProduceRequest,
    3,
    13,
    advertised_min=0,
    receives_records=True,
    fast_path=ProduceTemplates,
    wants_response=wants_response,
)
def produce(node: Node, ctx: Context, request: ProduceRequest) -> ProduceResult:
    """Append each partition's batch; responds when they are as durable as `acks` asks."""
    if request.transactional_id is None:
        return write_batches(node, ctx, request, None)
    return produce_in_transaction(node, ctx, request, request.transactional_id)


def produce_in_transaction(
    node: Node, ctx: Context, request: ProduceRequest, transactional_id: str
) -> ProduceResult:
    """Have the transaction's coordinator verify the batches first; this may take a while."""
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    batches = []
    for topic in request.topic_data:
        name = node.partitions.name_of(topic.topic_id) if by_id else topic.name
        for data in topic.partition_data:
            partition = node.partitions.get(name, data.index) if name is not None else None
            if partition is None or partition.internal or partition.error:
                continue  # refused later; not part of the transaction
            if data.records is not None and is_transactional(data.records):
                batches.append(((partition.topic, partition.index), data.records))
    verification = TransactionVerification(node, transactional_id, ctx.api_version, batches)
    if verification.ask():
        return write_batches(node, ctx, request, verification)
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The receive buffer is reused before the earlier transaction has ended.
            data.records = memoryview(bytearray(data.records or b""))
    return write_batches_later(node, ctx, request, verification)


async def write_batches_later(
    node: Node, ctx: Context, request: ProduceRequest, verification: TransactionVerification
) -> ProduceResponse | None:
    """Write batches that had to wait for an earlier transaction to end.

    On cancel nothing is written.
    """
    await verification.wait()
    result = write_batches(node, ctx, request, verification)
    if isinstance(result, Pending):
        return cast(ProduceResponse, await result.wait())
    if result is None or isinstance(result, ProduceResponse):
        return result
    return await result


def write_batches(
    node: Node, ctx: Context, request: ProduceRequest, verification: TransactionVerification | None
) -> ProduceResult:
    """Append the valid batches; responds when they are as durable as `acks` asks."""
    acks = request.acks
    now_ms = node.clock.now_ms()
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    targets: list[Target] = []
    unchecked: list[tuple[Partition, PartitionProduceData, PartitionProduceResponse]] = []
    topics = []
    for topic in request.topic_data:
        name = node.partitions.name_of(topic.topic_id) if by_id else topic.name
        results = []
        for data in topic.partition_data:
            result = PartitionProduceResponse(index=data.index)
            results.append(result)
            try:
                partition = node.partitions.find(name, data.index)
            except KafkaError as unknown:
                refuse(result, unknown)
                continue
            if not partition.opaque and must_check_records(partition, data.records):
                # The receive buffer is reused before a worker is done.
                data.records = memoryview(bytearray(data.records or b""))
                unchecked.append((partition, data, result))
                continue
            end_offset = append(
                partition, data, ctx.api_version, acks, now_ms, result, verification
            )
            if acks == ACKS_ALL:
                await_durable(targets, partition, end_offset, result, verification)
        topics.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=results
            )
        )
    response = ProduceResponse(responses=topics)
    if unchecked:
        return produce_after_check(node, ctx, request, unchecked, targets, response, verification)
    if targets:
        return park(node, request, targets, response, Pending(blocks=False))
    return response_to(request, response)


def response_to(request: ProduceRequest, response: ProduceResponse) -> ProduceResponse | None:
    """The response, or None with acks=0.

    Raises ProtocolError, which hangs up, if a batch failed with acks=0: there is no other way to
    tell the client.
    """
    if request.acks:
        return response
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise ProtocolError(
                    f"a produce with acks=0 to {topic.name}-{result.index} failed: "
                    f"{result.error_message}"
                )
    return None


def await_durable(
    targets: list[Target],
    partition: Partition,
    end_offset: int,
    result: PartitionProduceResponse,
    verification: TransactionVerification | None,
) -> None:
    """Add what an acks=all produce of one batch has to wait for, if anything."""
    if partition.log.high_watermark < end_offset:
        targets.append((partition, end_offset, result))
    if verification is not None and end_offset >= 0:
        state = verification.durable_at()
        if state is not None:
            targets.append((*state, result))


def park(
    node: Node,
    request: ProduceRequest,
    targets: list[Target],
    response: ProduceResponse,
    pending: Pending,
) -> Pending:
    """Hold the response until every target is durable; their syncs start at once."""
    SyncedResponse(targets, response, pending, refuse_batch).park(node, max(request.timeout_ms, 0))
    return pending


def must_check_records(partition: Partition, records: memoryview | None) -> bool:
    """Whether a worker must check a batch's records before it is appended.

    On a compacted topic it must, unless the batch is uncompressed and small: a compressed batch
    of any size may be a bomb.
    """
    if records is None or len(records) < HEADER_BYTES:
        return False  # refused by the log
    if partition.log.config.compression_type != "producer":
        return True
    return bool(records[CODEC_AT] & CODEC_MASK) or len(records) > INLINE_BYTES_MAX


async def produce_after_check(
    node: Node,
    ctx: Context,
    request: ProduceRequest,
    unchecked: list[tuple[Partition, PartitionProduceData, PartitionProduceResponse]],
    targets: list[Target],
    response: ProduceResponse,
    verification: TransactionVerification | None,
) -> ProduceResponse | None:
    """Finish a produce with batches that a worker must check or recompress.

    On cancel, batches that are not appended yet never are; their client gets no response.
    """
    for partition, data, result in unchecked:
        try:
            assert data.records is not None
            data.records = await checked_records(node, partition, data.records)
        except KafkaError as refused:
            refuse(result, refused)
            continue
        now_ms = node.clock.now_ms()
        end_offset = append(
            partition,
            data,
            ctx.api_version,
            request.acks,
            now_ms,
            result,
            verification,
            records_checked=True,
        )
        if request.acks == ACKS_ALL:
            await_durable(targets, partition, end_offset, result, verification)
    if targets:
        pending = park(node, request, targets, response, Pending())
        return cast(ProduceResponse, await pending.wait())
    return response_to(request, response)


async def checked_records(node: Node, partition: Partition, records: memoryview) -> memoryview:
    """Check the records of a batch in a worker, and recompress them with the topic's codec."""
    header = check_batch(records, 0, len(records))
    config = partition.log.config
    if header.size > config.max_message_bytes or header.size != len(records):
        return records  # refused by the log, which says why
    codec = codec_wanted(header, config)
    try:
        if codec is not None:
            packed = await node.workers.run(
                recompress, bytes(records), codec, config.compression_level
            )
            records = memoryview(packed)
        if config.is_compacted:
            await node.workers.run(check_keys, bytes(records))
    except WorkerError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return records


def append(
    partition: Partition,
    data: PartitionProduceData,
    api_version: int,
    acks: int,
    now_ms: int,
    result: PartitionProduceResponse,
    verification: TransactionVerification | None,
    *,
    records_checked: bool = False,
) -> int:
    """Append one partition's batch, fill in its result, and return the offset after it."""
    try:
        if acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, not -1, 0 or 1")
        error = partition.error
        if error:
            raise KafkaError(error)
        if acks == ACKS_ALL and partition.log.config.min_insync_replicas > 1:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "min.insync.replicas is more than the one replica that exists",
            )
        if partition.internal:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is an internal topic"
            )
        if data.records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
        if len(data.records) >= HEADER_BYTES:
            attributes = data.records[CODEC_AT]
            if attributes & TRANSACTIONAL_BIT:
                if verification is None:
                    check_batch(data.records, 0, len(data.records))  # the bit itself may be damaged
                    raise KafkaError(
                        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                        "records of a transaction need a transactional id",
                    )
                verification.check(partition, data.records)
            if api_version < ZSTD_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"zstd needs Produce v{ZSTD_VERSION} or newer",
                )
        info = partition.append(data.records, now_ms, keys_checked=records_checked)
    except KafkaError as refused:
        refuse(result, refused)
        return -1
    result.base_offset = info.base_offset
    result.log_append_time_ms = info.append_time_ms
    result.log_start_offset = info.start_offset
    return info.last_offset + 1


def refuse(result: PartitionProduceResponse, refused: KafkaError) -> None:
    """Make a partition's result the refusal of its batch, with the records at fault."""
    refuse_batch(result, refused.code, refused.message)
    if isinstance(refused, InvalidRecords):
        result.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=record_index, batch_index_error_message=refused.message
            )
            for record_index in refused.record_indexes
        ]

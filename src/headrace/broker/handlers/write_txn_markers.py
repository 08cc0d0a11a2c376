"""WriteTxnMarkers (key 27), v1-2. v1: flexible. v2: transaction version (KIP-1228).

Between brokers, and for administrators who end a transaction that hangs in a partition
(`kafka-transactions.sh abort`). This node's own coordinator writes its markers without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.partition import Partition
from headrace.broker.pending import Pending
from headrace.broker.purgatory import Waiting
from headrace.broker.registry import handles
from headrace.broker.transactions_markers import PATIENCE_MS
from headrace.coordinator.transactions.coordinator import BUMPING_VERSION
from headrace.coordinator.transactions.effects import Producer
from headrace.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.context import Context
    from headrace.broker.node import Node


# What an answer waits for: a partition, the offset behind its marker, and its result.
Target = tuple[Partition, int, WritableTxnMarkerPartitionResult]


class MarkersAsked(Waiting):
    """Markers that somebody asked for, written and not yet all durable.

    Unlike the coordinator, who has decided and waits for ever, a client is told what went wrong.
    """

    __slots__ = ("_pending", "_response", "_targets")

    def __init__(
        self, targets: list[Target], response: WriteTxnMarkersResponse, pending: Pending
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
                result.error_code = error
        self._pending.resolve(self._response)
        return True

    def expire(self) -> None:
        for partition, end_offset, result in self._targets:
            if partition.log.high_watermark < end_offset and not result.error_code:
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._pending.resolve(self._response)


@handles(WriteTxnMarkersRequest, 1, 2)
def write_txn_markers(node: Node, ctx: Context, request: WriteTxnMarkersRequest) -> Pending:
    """Write markers to partitions; answered when all of them are durable, or cannot be."""
    written: list[Target] = []
    results = [
        WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        _write(node, marker, topic.name, index, written)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]
    pending = Pending()
    response = WriteTxnMarkersResponse(markers=results)
    waiting = MarkersAsked(written, response, pending)
    if not waiting.try_complete():
        partitions = [partition for partition, _, _ in written]
        node.produces.park(waiting, partitions, PATIENCE_MS)
        for partition in partitions:
            partition.sync()
    return pending


def _write(
    node: Node,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    written: list[Target],
) -> WritableTxnMarkerPartitionResult:
    producer = Producer(marker.producer_id, marker.producer_epoch)
    try:
        partition = node.partitions.get(topic, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if marker.transaction_version >= BUMPING_VERSION:
            _check_bumped(partition, producer)
        end_offset = node.transactions.markers.append(
            partition, producer, marker.transaction_result, marker.coordinator_epoch
        )
    except KafkaError as error:
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)
    result = WritableTxnMarkerPartitionResult(partition_index=index)
    written.append((partition, end_offset, result))
    return result


def _check_bumped(partition: Partition, producer: Producer) -> None:
    """Raise KafkaError for a marker that is late: each transaction has an epoch of its own."""
    known = partition.log.producers.get(producer.id)
    if known is not None and known.is_in_transaction and producer.epoch <= known.epoch:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

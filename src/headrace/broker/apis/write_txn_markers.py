"""WriteTxnMarkers (key 27), v1-2. v1: flexible. v2: transaction version (KIP-1228).

For other brokers, and for administrators who end a transaction that hangs in a partition
(`kafka-transactions.sh abort`). This node's own coordinator writes its markers without it.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.partition import Partition
from headrace.broker.purgatory import Pending, SyncedResponse, SyncedTarget
from headrace.broker.registry import Context, serves
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

Target = SyncedTarget[WritableTxnMarkerPartitionResult]


@serves(WriteTxnMarkersRequest, 1, 2)
def write_txn_markers(node: Node, ctx: Context, request: WriteTxnMarkersRequest) -> Pending:
    """Write markers to partitions; responds when all of them are durable, or failed."""
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
    # Unlike the coordinator, which retries forever, a client gets the error.
    waiting = SyncedResponse(written, response, pending, _refuse)
    if not waiting.try_complete():
        waiting.park(node, PATIENCE_MS)
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


def _refuse(result: WritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
    result.error_code = error


def _check_bumped(partition: Partition, producer: Producer) -> None:
    """Raise KafkaError for a marker that is late: each transaction has its own epoch."""
    known = partition.log.producers.get(producer.id)
    if known is not None and known.is_in_transaction and producer.epoch <= known.epoch:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

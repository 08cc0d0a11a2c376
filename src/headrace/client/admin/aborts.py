"""Ending transactions from outside: by fencing a producer, or by a marker in one partition.

A hanging transaction is open in a partition but unknown to every coordinator. It holds back every
read_committed reader of the partition. Brokers before KIP-890 could be left with one
when a late request of a dead producer came after its transaction had ended.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.admin.errors import AdminError, not_found
from headrace.client.admin.partition_sets import PartitionSelection
from headrace.client.admin.transactions import Transaction, list_transactions, read_producers
from headrace.client.wire.cluster import ClusterClient, CoordinatorOf
from headrace.protocol.api.describe_producers import ProducerState
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

DEFAULT_TIMEOUT_MS = 60_000


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition and that no coordinator knows."""

    topic: str
    partition: int
    start: int
    producer: int
    epoch: int
    last_ms: int


def find_hanging(
    cluster: ClusterClient, selection: PartitionSelection, before_ms: int
) -> list[HangingTransaction]:
    """Hanging transactions that have had no record since a time."""
    candidates = [
        (key, producer)
        for key, producers in read_producers(cluster, _partitions(cluster, selection)).items()
        for producer in producers
        if producer.current_txn_start_offset >= 0 and producer.last_timestamp <= before_ms
    ]
    known = _known(cluster, {producer.producer_id for _, producer in candidates})
    return [
        HangingTransaction(
            *key,
            start=producer.current_txn_start_offset,
            producer=producer.producer_id,
            epoch=producer.producer_epoch,
            last_ms=producer.last_timestamp,
        )
        for key, producer in candidates
        if (*key, producer.producer_id) not in known
    ]


def _known(cluster: ClusterClient, producer_ids: set[int]) -> set[tuple[str, int, int]]:
    """Partition and producer of every transaction that a coordinator will end."""
    if not producer_ids:
        return set()
    return {
        (*key, row.producer)
        for row in list_transactions(cluster, producer_ids=sorted(producer_ids))
        if row.is_open
        for key in row.partitions
    }


def _partitions(cluster: ClusterClient, selection: PartitionSelection) -> list[TopicPartition]:
    keys: list[TopicPartition] = []
    for topic in cluster.topics(selection or None):
        name = topic.name or ""
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise not_found("topic", name, (), "headrace topic list")
        wanted = selection.get(name)
        keys += [
            (name, partition.partition_index)
            for partition in topic.partitions
            if wanted is None or partition.partition_index in wanted
        ]
    return keys


def check_open(found: Transaction) -> None:
    """AdminError if there is nothing to abort."""
    if not found.is_open:
        raise AdminError(
            f"{found.id!r} has no open transaction (it is {found.state})",
            "headrace txn list --state ongoing shows the open ones",
        )


def fence(cluster: ClusterClient, found: Transaction) -> int:
    """Take over the id as a new producer would and return its epoch, which fences the old one.

    See KIP-98.
    """
    request = InitProducerIdRequest(
        transactional_id=found.id,
        # The id keeps the timeout that its producer asked for.
        transaction_timeout_ms=found.timeout_ms or DEFAULT_TIMEOUT_MS,
    )
    answer = cluster.ask_coordinator(
        CoordinatorOf.TRANSACTION,
        found.id,
        request,
        InitProducerIdResponse,
        lambda answer: (answer.error_code, None),
    )
    return answer.producer_epoch


def find_producer(cluster: ClusterClient, key: TopicPartition, start_offset: int) -> ProducerState:
    """The producer whose open transaction starts at that offset."""
    producers = read_producers(cluster, [key])
    if key not in producers:
        raise AdminError(
            f"there is no partition {key[0]}:{key[1]}",
            f"headrace topic describe {key[0]} shows its partitions",
        )
    opened = {row.current_txn_start_offset: row for row in producers[key]}
    if start_offset not in opened:
        starts = sorted(start for start in opened if start >= 0)
        listed = ", ".join(map(str, starts))
        hint = f"open ones start at {listed}" if listed else "no transaction is open there"
        raise AdminError(f"no transaction starts at {key[0]}:{key[1]} offset {start_offset}", hint)
    return opened[start_offset]


def check_hanging(cluster: ClusterClient, key: TopicPartition, producer: ProducerState) -> None:
    """AdminError if the coordinator of the transaction may yet commit it."""
    for known in list_transactions(cluster, producer_ids=[producer.producer_id]):
        if known.is_open and key in known.partitions:
            raise AdminError(
                f"it is part of the transaction of {known.id!r}, which is {known.state}",
                f"abort it as a whole: headrace txn abort {known.id}",
            )


def write_marker(cluster: ClusterClient, key: TopicPartition, producer: ProducerState) -> None:
    """Have the leader end a producer's transaction in one partition, as a coordinator would."""
    topic, partition = key
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        # A partition that has never seen a marker of this producer knows no epoch.
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    cluster.ask_leader(
        topic,
        partition,
        WriteTxnMarkersRequest(markers=[marker]),
        WriteTxnMarkersResponse,
        lambda answer: (answer.markers[0].topics[0].partitions[0].error_code, None),
    )

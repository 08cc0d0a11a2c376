"""Ending transactions from outside: by fencing a producer, or by a marker in one partition."""

from __future__ import annotations

from headrace.cli.common.errors import CliError
from headrace.cli.txn.transactions import Transaction, list_transactions, read_producers
from headrace.client.wire.cluster import Cluster, CoordinatorOf
from headrace.protocol.api.describe_producers import ProducerState
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.protocol.partitions import TopicPartition

DEFAULT_TIMEOUT_MS = 60_000


def check_open(found: Transaction) -> None:
    """Refuse to fence a producer that has nothing to abort."""
    if not found.is_open:
        raise CliError(
            f"{found.id!r} has no open transaction (it is {found.state})",
            "headrace txn list --state ongoing shows those that have",
        )


def fence(cluster: Cluster, found: Transaction) -> int:
    """Take over the id as a new producer would: its epoch fences the old one (KIP-98)."""
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


def find_producer(cluster: Cluster, key: TopicPartition, start_offset: int) -> ProducerState:
    """The producer whose open transaction starts at that offset."""
    producers = read_producers(cluster, [key])
    if key not in producers:
        raise CliError(
            f"there is no partition {key[0]}:{key[1]}", "headrace topic list shows what there is"
        )
    opened = {row.current_txn_start_offset: row for row in producers[key]}
    if start_offset not in opened:
        starts = sorted(start for start in opened if start >= 0)
        hint = f"open ones start at {', '.join(map(str, starts))}" if starts else "none is open"
        raise CliError(f"no transaction starts at {key[0]}:{key[1]} offset {start_offset}", hint)
    return opened[start_offset]


def check_hanging(cluster: Cluster, key: TopicPartition, producer: ProducerState) -> None:
    """Refuse to abort a part of a transaction that its coordinator may yet commit."""
    for known in list_transactions(cluster, producer_ids=[producer.producer_id]):
        if known.is_open and key in known.partitions:
            raise CliError(
                f"that is a part of the transaction of {known.id!r}, which is {known.state}",
                f"abort all of it: headrace txn abort {known.id}",
            )


def write_marker(cluster: Cluster, key: TopicPartition, producer: ProducerState) -> None:
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

"""Transactions that hang: open in a partition, and nobody is left to end them.

They hold back every read_committed reader of the partition. Brokers before KIP-890 could be left
with one when a late request of a dead producer came after its transaction had ended.
"""

from __future__ import annotations

from headrace.cli.common.durations import show_time
from headrace.cli.common.errors import CliError
from headrace.cli.common.partition_sets import Selection
from headrace.cli.txn.transactions import list_transactions, read_producers
from headrace.client.wire.cluster import Cluster
from headrace.protocol.api.describe_producers import ProducerState
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition


def find_hanging(cluster: Cluster, selection: Selection, before_ms: int) -> list[dict[str, object]]:
    """Open transactions without a record since then that their coordinators do not know."""
    candidates = [
        (key, producer)
        for key, producers in read_producers(cluster, _partitions(cluster, selection)).items()
        for producer in producers
        if producer.current_txn_start_offset >= 0 and producer.last_timestamp <= before_ms
    ]
    known = _known(cluster, {producer.producer_id for _, producer in candidates})
    return [
        _row(key, producer)
        for key, producer in candidates
        if (*key, producer.producer_id) not in known
    ]


def _known(cluster: Cluster, producer_ids: set[int]) -> set[tuple[str, int, int]]:
    """Partition and producer of every transaction that a coordinator will end by itself."""
    if not producer_ids:
        return set()
    return {
        (*key, row.producer)
        for row in list_transactions(cluster, producer_ids=sorted(producer_ids))
        if row.is_open
        for key in row.partitions
    }


def _partitions(cluster: Cluster, selection: Selection) -> list[TopicPartition]:
    keys: list[TopicPartition] = []
    for topic in cluster.topics(selection or None):
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CliError(
                f"there is no topic {topic.name!r}", "headrace topic list shows what there is"
            )
        name = topic.name or ""
        wanted = selection.get(name)
        keys += [
            (name, partition.partition_index)
            for partition in topic.partitions
            if wanted is None or partition.partition_index in wanted
        ]
    return keys


def _row(key: TopicPartition, producer: ProducerState) -> dict[str, object]:
    return {
        "topic": key[0],
        "partition": key[1],
        "start": producer.current_txn_start_offset,
        "producer": producer.producer_id,
        "epoch": producer.producer_epoch,
        "last": show_time(producer.last_timestamp),
    }

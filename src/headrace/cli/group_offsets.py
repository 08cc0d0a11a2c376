"""Where groups and partitions stand: committed offsets, first and last ones, offsets by time.

Committed offsets go over our own wire: the library neither waits for a coordinator that is on the
move nor survives it (librdkafka issue 5040: it crashes).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.cli.connection import REQUEST_TIMEOUT_SECONDS
from headrace.client.cluster import Cluster, CoordinatorOf
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# The last versions that ask for one group, and by topic names.
FETCH_VERSION = 7
COMMIT_VERSION = 9

Key = tuple[str, int]


class Bounds(NamedTuple):
    """The first offset that a partition holds, and the one that it gives out next."""

    start: int
    end: int


def read_committed(cluster: Cluster, group: str) -> dict[Key, int]:
    """The offsets that a group has committed; nothing for a group that is not there."""
    answer = cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        OffsetFetchRequest(group_id=group, topics=None),
        OffsetFetchResponse,
        lambda answer: (answer.error_code or _first_error(answer), None),
        FETCH_VERSION,
    )
    places = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }
    return dict(sorted(places.items()))


def commit(cluster: Cluster, group: str, places: dict[Key, int]) -> None:
    """Commit offsets for a group without members; durable when this returns."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=places[topic, partition]
                )
                for _, partition in keys
            ],
        )
        for topic, keys in groupby(sorted(places), key=lambda key: key[0])
    ]
    cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        OffsetCommitRequest(group_id=group, topics=topics),
        OffsetCommitResponse,
        lambda answer: (_first_error(answer), None),
        COMMIT_VERSION,
    )


def _first_error(answer: OffsetFetchResponse | OffsetCommitResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return next(filter(None, codes), 0)


def read_bounds(admin: AdminClient, keys: Iterable[Key]) -> dict[Key, Bounds]:
    """First and next offset of partitions; those that are not there any more are left out."""
    from confluent_kafka.admin import OffsetSpec

    keys = list(keys)
    starts = _list_offsets(admin, keys, OffsetSpec.earliest())
    ends = _list_offsets(admin, keys, OffsetSpec.latest())
    return {key: Bounds(starts[key], ends[key]) for key in keys if key in starts and key in ends}


def read_offsets_at(admin: AdminClient, keys: Iterable[Key], time_ms: int) -> dict[Key, int]:
    """The first offset at that time or later; -1 where every record is older."""
    from confluent_kafka.admin import OffsetSpec

    return _list_offsets(admin, list(keys), OffsetSpec.for_timestamp(time_ms))


def _list_offsets(admin: AdminClient, keys: list[Key], spec: Any) -> dict[Key, int]:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    if not keys:
        return {}
    futures = admin.list_offsets(
        {TopicPartition(*key): spec for key in keys}, request_timeout=REQUEST_TIMEOUT_SECONDS
    )
    gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
    offsets = {}
    for asked, future in futures.items():
        try:
            offsets[asked.topic, asked.partition] = future.result().offset
        except KafkaException as problem:
            if problem.args[0].code() not in gone:
                raise
    return offsets

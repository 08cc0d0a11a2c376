"""Where partitions start and end, and their offsets by time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

REQUEST_SECONDS = 30.0


class Bounds(NamedTuple):
    """The first offset that a partition holds, and the next one that it assigns."""

    start: int
    end: int


def read_bounds(admin: AdminClient, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """First and next offset of partitions; those that no longer exist are left out."""
    from confluent_kafka.admin import OffsetSpec

    keys = list(keys)
    starts = _list_offsets(admin, keys, OffsetSpec.earliest())
    ends = _list_offsets(admin, keys, OffsetSpec.latest())
    return {key: Bounds(starts[key], ends[key]) for key in keys if key in starts and key in ends}


def read_offsets_at(
    admin: AdminClient, keys: Iterable[TopicPartition], time_ms: int
) -> dict[TopicPartition, int]:
    """The first offset at that time or later; -1 where every record is older."""
    from confluent_kafka.admin import OffsetSpec

    return _list_offsets(admin, list(keys), OffsetSpec.for_timestamp(time_ms))


def _list_offsets(
    admin: AdminClient, keys: list[TopicPartition], spec: Any
) -> dict[TopicPartition, int]:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import TopicPartition as LibraryPartition

    if not keys:
        return {}
    futures = admin.list_offsets(
        {LibraryPartition(*key): spec for key in keys}, request_timeout=REQUEST_SECONDS
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

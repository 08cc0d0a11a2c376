"""Places in partitions: as a mapping that reads well, or as the library's own TopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicPartition

# {("orders", 0): 42}, or TopicPartitions with their offsets.
Places = Mapping[tuple[str, int], int] | Iterable[Any]


def to_partitions(places: Places, marks: Mapping[str, str] | None = None) -> list[Any]:
    """TopicPartitions with offsets; a topic's mark is the metadata of those that have none."""
    marks = marks or {}
    if isinstance(places, Mapping):
        return [
            _partition(topic, number, offset, marks.get(topic))
            for (topic, number), offset in places.items()
        ]
    given: Iterable[Any] = places
    return [
        _partition(it.topic, it.partition, it.offset, it.metadata or marks.get(it.topic))
        for it in given
    ]


def _partition(topic: str, number: int, offset: int, metadata: str | None) -> Any:
    if metadata is None:
        return TopicPartition(topic, number, offset)
    return TopicPartition(topic, number, offset, metadata)

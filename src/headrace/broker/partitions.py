"""The partitions that this broker leads, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.partition import Partition
from headrace.protocol.errors import ErrorCode, KafkaError


class Partitions:
    """Every partition that this broker leads, by topic name and by topic id."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Partition | None]] = {}
        self._name_by_id: dict[bytes, str] = {}
        # Partitions whose disk is missing, with their topic's id.
        self._offline: dict[tuple[str, int], bytes] = {}

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, or None if there is no such topic or index."""
        partitions = self._by_name.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def find(self, topic: str | None, index: int) -> Partition:
        """The partition; raises KafkaError if it is unknown or its disk is missing.

        None is what `name_of` returns for an unknown topic id.
        """
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partitions = self._by_name.get(topic, ())
        partition = partitions[index] if 0 <= index < len(partitions) else None
        if partition is None:
            offline = (topic, index) in self._offline
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return partition

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return self._name_by_id.get(topic_id)

    def exists(self, topic: str, index: int) -> bool:
        """Whether there is such a partition, even if its disk is missing."""
        return self.get(topic, index) is not None or (topic, index) in self._offline

    def add_offline(self, topic: str, topic_id: bytes, index: int) -> None:
        """Add a partition whose disk is missing."""
        self._offline[topic, index] = topic_id
        self._name_by_id[topic_id] = topic

    def add(self, partition: Partition) -> None:
        """Start serving a partition."""
        partitions = self._by_name.setdefault(partition.topic, [])
        partitions.extend([None] * (partition.index + 1 - len(partitions)))
        partitions[partition.index] = partition
        self._name_by_id[partition.topic_id] = partition.topic

    def remove(self, topic: str) -> list[Partition]:
        """Stop serving a topic; requests that wait for it get their responses."""
        removed = [p for p in self._by_name.pop(topic, ()) if p is not None]
        for place in [place for place in self._offline if place[0] == topic]:
            self._name_by_id.pop(self._offline.pop(place), None)
        for partition in removed:
            self._name_by_id.pop(partition.topic_id, None)
            partition.deleted = True
            partition.close()
            partition.wake()
        return removed

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            for partition in partitions:
                if partition is not None:
                    yield partition

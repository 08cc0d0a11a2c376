"""Offsets of many partitions: the oldest, the end, those since a time, the committed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient

from headrace.client.consumer.start import Start
from headrace.client.retry_loop import retry
from headrace.client.setting_names import LIBRARY_BOTH
from headrace.protocol.partitions import TopicPartition

PAUSE_SECONDS = 0.1
# What ListOffsets takes in place of a time.
_LATEST, _EARLIEST = -1, -2

T = TypeVar("T")

# {("orders", 0): 42}, or the library's TopicPartitions with their offsets.
PartitionOffsets = Mapping[TopicPartition, int] | Iterable[Any]

_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    # A member may be assigned a partition before it knows the leader.
    KafkaError._UNKNOWN_PARTITION,
)


class OffsetReader:
    """Asks for the offsets of many partitions at once, again while a refusal is passing."""

    def __init__(self, client: Any, timeout_s: float, config: Mapping[str, Any]) -> None:
        self._client = client
        self._config = config
        self.timeout_s = timeout_s

    def oldest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._list(partitions, _EARLIEST)

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last readable record of each."""
        return self._list(partitions, _LATEST)

    def ends_of_available(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The same, without those whose leader cannot be asked now."""
        asked = [LibraryPartition(*partition, _LATEST) for partition in partitions]
        if not asked:
            return {}
        try:
            found = self._client.offsets_for_times(asked, timeout=self.timeout_s)
        except KafkaException:
            return {}
        return {(it.topic, it.partition): it.offset for it in found if it.error is None}

    def since(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset of each at that time or later; the end where every record is older."""
        asked = list(partitions)
        ends = self.ends(asked)
        found = self._list(asked, max(0, time_ms))
        return {
            partition: ends[partition] if found[partition] < 0 else found[partition]
            for partition in asked
        }

    def at(
        self, partitions: Iterable[TopicPartition], start: Start, now_ms: int
    ) -> dict[TopicPartition, int]:
        """The offset of a start in each."""
        if start.kind == "earliest":
            return self.oldest(partitions)
        if start.kind == "latest":
            return self.ends(partitions)
        return self.since(partitions, start.since_ms(now_ms))

    def committed(self, partitions: Iterable[TopicPartition]) -> list[Any]:
        """TopicPartitions with the committed offset and metadata of the group."""
        asked = [LibraryPartition(*partition) for partition in partitions]
        if not asked:
            return []
        return self.insist(lambda: self._client.committed(asked, timeout=self.timeout_s))

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 if it does not exist; not for callbacks."""
        return self._count(self._client, topic)

    def partitions_apart(self, topic: str) -> int:
        """The same on a separate connection, for callbacks of the consumer.

        librdkafka's consumer would lose the context of the current poll, and the next callback of
        that poll would abort the process.
        """
        config = {name: value for name, value in self._config.items() if name in LIBRARY_BOTH}
        return self._count(AdminClient(config), topic)

    def _count(self, client: Any, topic: str) -> int:
        found = self.insist(lambda: client.list_topics(topic, timeout=self.timeout_s))
        return len(found.topics[topic].partitions)

    def insist(self, ask: Callable[[], T]) -> T:
        """Ask again while the refusal is passing and time is left."""
        return retry(ask, _pause_s, timeout_s=self.timeout_s)

    def _list(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int]:
        asked = [LibraryPartition(*partition, time_ms) for partition in partitions]
        if not asked:
            return {}

        def ask() -> list[Any]:
            found: list[Any] = self._client.offsets_for_times(asked, timeout=self.timeout_s)
            for it in found:
                if it.error is not None:
                    raise KafkaException(it.error)
            return found

        return {(found.topic, found.partition): found.offset for found in self.insist(ask)}


def _pause_s(problem: Exception) -> float | None:
    if not isinstance(problem, KafkaException):
        return None
    error = problem.args[0]
    return PAUSE_SECONDS if error.code() in _PASSING or error.retriable() else None


def to_partitions(offsets: PartitionOffsets, marks: Mapping[str, str] | None = None) -> list[Any]:
    """TopicPartitions with offsets; a topic's mark is the metadata of those without any."""
    marks = marks or {}
    if isinstance(offsets, Mapping):
        return [
            _partition(topic, number, offset, marks.get(topic))
            for (topic, number), offset in offsets.items()
        ]
    given: Iterable[Any] = offsets
    return [
        _partition(it.topic, it.partition, it.offset, it.metadata or marks.get(it.topic))
        for it in given
    ]


def _partition(topic: str, number: int, offset: int, metadata: str | None) -> Any:
    if metadata is None:
        return LibraryPartition(topic, number, offset)
    return LibraryPartition(topic, number, offset, metadata)

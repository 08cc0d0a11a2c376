"""The topics of a test's broker: created, measured and read to their end."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.client.admin.topics import NeededTopic, create_topics
from headrace.client.message import Message
from headrace.protocol.partitions import TopicPartition

TIMEOUT_SECONDS = 30.0


class BrokerTopics:
    """Reads topics from outside the application."""

    def __init__(self, bootstrap: str) -> None:
        self._config = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(self._config)

    def create(
        self,
        names: Iterable[str],
        config: Mapping[str, str] | None = None,
        partitions: int = -1,
    ) -> None:
        """Create missing topics, by default with as many partitions as the broker chooses."""
        # A name that begins with ^ is a pattern.
        plain = [name for name in names if not name.startswith("^")]
        new = [NeededTopic(name, partitions, config or {}) for name in plain]
        create_topics(self._admin, new, TIMEOUT_SECONDS)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic; none if it does not exist."""
        found = self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics.get(topic)
        return [] if found is None else sorted(found.partitions)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        asked = {LibraryPartition(*place): OffsetSpec.latest() for place in places}
        if not asked:
            return {}
        found = self._admin.list_offsets(asked)
        return {
            (place.topic, place.partition): future.result(TIMEOUT_SECONDS).offset
            for place, future in found.items()
        }

    def read(self, topic: str) -> list[Message]:
        """All records of a topic, partition by partition."""
        starts = [
            LibraryPartition(topic, partition, OFFSET_BEGINNING)
            for partition in self.partitions(topic)
        ]
        with closing(self._records(starts)) as records:
            messages = [Message.from_record(record) for record in records]
        return sorted(messages, key=lambda message: (message.partition, message.offset))

    def has_records(self, place: TopicPartition, offset: int) -> bool:
        """Whether there is a record from an offset on, other than transaction markers."""
        with closing(self._records([LibraryPartition(*place, offset)])) as records:
            return next(records, None) is not None

    def _records(self, starts: list[LibraryPartition]) -> Generator[Any]:
        """The records of partitions, each from an offset to its end."""
        consumer = Consumer(
            {
                **self._config,
                "group.id": "headrace-testing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # The library reports the end once a fetch has waited this long.
                "fetch.wait.max.ms": 10,
            }
        )
        unread = {(start.topic, start.partition) for start in starts}
        try:
            consumer.assign(starts)
            while unread:
                record = consumer.poll(TIMEOUT_SECONDS)
                if record is None:
                    raise TimeoutError(f"{unread} were not read within {TIMEOUT_SECONDS:g} s")
                error = record.error()
                if error is None:
                    yield record
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((record.topic(), record.partition()))
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()

"""A member of a group that reads one topic: what came, partition by partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.ledger import clients

METADATA_SECONDS = 20.0

_log = logging.getLogger("headrace.ledger")

# Partitions that came, or went.
OnChange = Callable[[Sequence[int]], None]
Records = dict[int, list[Any]]


class Reader:
    """Used by one thread; the callbacks run in it, while it reads."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        on_assign: OnChange,
        on_revoke: OnChange,
        start: int | None = None,
    ) -> None:
        self.topic = topic
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        # Where it begins: here, or at the committed position.
        self._start = start
        # A mark for each partition, another one each time that it comes.
        self._marks: dict[int, object] = {}
        self._consumer = clients.consumer(settings, topic)

    def join(self) -> None:
        """Join the group; partitions come and go while it reads."""
        self._consumer.subscribe(
            [self.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def read(self, wait_s: float, most: int) -> tuple[Records, dict[int, int]]:
        """What has come, and the ends that were reached; waits for the first of it.

        KafkaException if it cannot go on.
        """
        records: Records = {}
        ends: dict[int, int] = {}
        first = self._consumer.poll(wait_s)
        if first is None:
            return records, ends
        mark = self._marks.get(first.partition())
        others = self._consumer.consume(most, 0)
        if self._marks.get(first.partition()) is mark:
            self._sort(first, records, ends)
        # Else its partition went, and maybe came again, in between: it will be read again.
        for record in others:
            self._sort(record, records, ends)
        return records, ends

    @property
    def generation(self) -> Any:
        """The group and this member of it, for offsets in a transaction."""
        return self._consumer.consumer_group_metadata()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        found = self._consumer.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _sort(self, record: Any, records: Records, ends: dict[int, int]) -> None:
        error = record.error()
        if error is None:
            records.setdefault(record.partition(), []).append(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[record.partition()] = record.offset()
        elif error.fatal():
            raise KafkaException(error)
        else:
            _log.warning("reading %s: %s", self.topic, error.str())

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        # Before the first fetch, so that all that is read was written before or is new.
        self._on_assign(numbers)
        self._marks.update((number, object()) for number in numbers)
        if self._start is not None:
            for partition in partitions:
                partition.offset = self._start
        consumer.incremental_assign(partitions)

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        for number in numbers:
            self._marks.pop(number, None)
        self._on_revoke(numbers)
        consumer.incremental_unassign(partitions)

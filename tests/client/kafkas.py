"""A Kafka for the tests of clients, and topics on it that no other test has."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.waiting import wait_until

TIMEOUT_SECONDS = 60.0
# Members of a group hear of a rebalance by their heartbeats, and of the end of a partition when a
# fetch has waited; by default that takes three seconds and half a second.
LIVELY = {"heartbeat.interval.ms": 200, "fetch.wait.max.ms": 50}

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Kafka:
    """Where it is, whoever built it."""

    kind: str
    bootstrap: str

    @property
    def quiet(self) -> dict[str, Any]:
        """Settings of a stock client."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0}

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic that no other test has, and return its name."""
        topic = f"{name}-c{next(_numbers)}"
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        admin = AdminClient(self.quiet)
        admin.create_topics([new])[topic].result(TIMEOUT_SECONDS)
        self._wait_for(topic, partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        wanted = NewPartitions(topic, partitions)
        admin = AdminClient(self.quiet)
        admin.create_partitions([wanted])[topic].result(TIMEOUT_SECONDS)
        self._wait_for(topic, partitions)

    def fill(
        self, topic: str, count: int, *, partition: int = 0, timestamp_ms: int = 0, word: str = "v"
    ) -> None:
        """Write this many records by a stock client."""
        producer = Producer({**self.quiet, "linger.ms": 0})
        for number in range(count):
            producer.produce(
                topic, f"{word}{number}", f"k{number}", partition, timestamp=timestamp_ms
            )
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def read(self, topic: str, count: int) -> list[Any]:
        """The first records of a topic, by a stock client."""
        consumer = Consumer(
            {**self.quiet, "group.id": "reader", "isolation.level": "read_committed"}
        )
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(found) < count and time.monotonic() < deadline:
            found += [it for it in consumer.consume(count, 0.1) if it.error() is None]
        consumer.close()
        return found

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """What a group has committed."""
        consumer = Consumer({**self.quiet, "group.id": group})
        [found] = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_SECONDS)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    def _wait_for(self, topic: str, partitions: int) -> None:
        admin = AdminClient(self.quiet)

        def is_there() -> bool:
            found = admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
            return len(found) == partitions and all(it.leader >= 0 for it in found.values())

        wait_until(is_there)


def values(records: list[Any]) -> list[str]:
    """The values as text."""
    return [record.value().decode() for record in records]


def read_records(consumer: Any, count: int) -> list[Any]:
    """Poll until this many records have come, and return them."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(consumer.poll_batch(100, 0.1))
        return len(found) >= count

    wait_until(enough)
    return found


def read_values(consumer: Any, count: int) -> list[str]:
    """Poll until this many records have come, and return their values."""
    return values(read_records(consumer, count))

"""Helpers around a running App: send records, wait for a condition, look at offsets and topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.waiting import WAIT_SECONDS

# Between two looks at a condition.

Record = tuple[bytes | None, bytes | None]


def send(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | str | None],
    *,
    key: Callable[[int], bytes | None] = lambda _: None,
    headers: Callable[[int], list[tuple[str, bytes]] | None] = lambda _: None,
    partition: int = -1,
) -> None:
    """Write records and wait until they are written."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, key(number), partition, headers=headers(number))
    assert producer.flush(WAIT_SECONDS) == 0


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """The committed offset of a group; negative when there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], WAIT_SECONDS)
        return int(found.offset)
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    """The first `count` committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-all",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        records: list[Any] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records in {topic}"
            record = consumer.poll(0.2)
            if record is not None and record.error() is None:
                records.append(record)
        # A moment more, for records that should not be there.
        more = consumer.consume(10, 0.3)
        return records + [record for record in more if record.error() is None]
    finally:
        consumer.close()

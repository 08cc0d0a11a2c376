"""Topics with records at known times, and groups with places in them."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_SECONDS = 60.0
NEW_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def fill(bootstrap: str, topic: str, counts: list[int], *, from_ms: int = 1000) -> None:
    """Make a topic with this many records in each partition, one a second from that time on."""
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(quiet)
    admin.create_topics([NewTopic(topic, len(counts), 1)])[topic].result(TIMEOUT_SECONDS)
    producer = Producer({**quiet, "linger.ms": 0})
    for partition, count in enumerate(counts):
        for number in range(count):
            time_ms = from_ms + 1000 * number
            producer.produce(topic, f"{number}", partition=partition, timestamp=time_ms)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def commit(bootstrap: str, group: str, places: dict[tuple[str, int], int]) -> None:
    """Commit places for a group without joining it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    offsets = [TopicPartition(*key, offset) for key, offset in places.items()]
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while True:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
                return
            except KafkaException as refusal:
                # A coordinator that is new needs a moment, and the client does not wait for it.
                if refusal.args[0].code() not in NEW_COORDINATOR or time.monotonic() > deadline:
                    raise
                consumer.poll(0.1)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int | None]:
    """The places of a group in a topic; None where it has none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = consumer.committed(asked, timeout=TIMEOUT_SECONDS)
        return [place.offset if place.offset >= 0 else None for place in found]
    finally:
        consumer.close()

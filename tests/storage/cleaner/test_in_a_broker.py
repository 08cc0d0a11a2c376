"""Compaction in a running broker: in its worker process, under real clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import wait_until

from headrace.storage.verify import verify
from headrace.testing import BrokerThread

SETTINGS = {
    "log.initial.task.delay.ms": 0,
    "log.cleaner.backoff.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 50,
}
KEYS = 50


def write(bootstrap: str, rounds: int) -> dict[bytes, bytes]:
    """Write every key again and again; the state that readers must end with."""
    state: dict[bytes, bytes] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})
    for number in range(rounds):
        for key in range(KEYS):
            name, value = b"k%d" % key, b"%d" % number + b"x" * 400
            producer.produce("t", value, name, partition=0)
            state[name] = value
        producer.flush()
    return state


def read(bootstrap: str) -> list[Any]:
    """All records of the topic, in the order a fresh consumer gets them."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        place = TopicPartition("t", 0, 0)
        _, high = consumer.get_watermark_offsets(place, timeout=10)
        consumer.assign([place])
        records: list[Any] = []
        while not records or records[-1].offset() < high - 1:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            records.append(message)
        return records
    finally:
        consumer.close()


def test_a_compacted_topic_shrinks_and_keeps_its_state(tmp_path: Path) -> None:
    with BrokerThread(SETTINGS, data_dir=tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": "65536",
            "min.cleanable.dirty.ratio": "0.01",
        }
        admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(10)
        state = write(broker.bootstrap, rounds=20)
        before = read(broker.bootstrap)
        assert len(before) <= 20 * KEYS
        offsets = {message.offset(): message.value() for message in before}

        wait_until(lambda: len(read(broker.bootstrap)) < 8 * KEYS)
        after = read(broker.bootstrap)
        assert {message.key(): message.value() for message in after} == state
        assert all(
            offsets.get(message.offset(), message.value()) == message.value() for message in after
        )
        broker.restart()
        assert {message.key(): message.value() for message in read(broker.bootstrap)} == state
    assert list(verify(str(tmp_path / "data"))) == []

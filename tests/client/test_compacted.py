"""Reading a compacted topic from its beginning and then live."""

from __future__ import annotations

import threading

import pytest
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.waiting import wait_until

from headrace.client import CompactedReader, Producer


def test_everything_is_there_when_it_has_caught_up_and_then_it_is_live(kafka: Kafka) -> None:
    topic = kafka.topic("prices", 3, {"cleanup.policy": "compact"})
    table: dict[bytes, bytes] = {}

    def keep(key: bytes, value: bytes | None) -> None:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    with Producer(kafka.quiet) as producer:
        for number in range(300):
            producer.send(topic, f"{number}", key=f"k{number % 30}")
        producer.flush()
        with CompactedReader(kafka.quiet, topic, keep) as reader:
            assert reader.caught_up.wait(TIMEOUT_SECONDS)
            assert table == {f"k{n % 30}".encode(): f"{n}".encode() for n in range(270, 300)}
            producer.send(topic, None, key="k0")
            producer.send(topic, "new", key="k1")
            wait_until(lambda: b"k0" not in table and table[b"k1"] == b"new")


def test_a_topic_that_is_not_there_is_empty_until_it_is(headrace_kafka: Kafka) -> None:
    seen: list[tuple[bytes, bytes | None]] = []
    came = threading.Event()

    def note(key: bytes, value: bytes | None) -> None:
        seen.append((key, value))
        came.set()

    with CompactedReader(headrace_kafka.quiet, "comes-later", note) as reader:
        assert reader.caught_up.wait(TIMEOUT_SECONDS)
        assert seen == []
        with Producer(headrace_kafka.quiet) as producer:
            producer.send_and_wait("comes-later", "v", key="k")
        assert came.wait(TIMEOUT_SECONDS)
    assert seen == [(b"k", b"v")]


def test_new_partitions_come_along(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("widens", 1, {"cleanup.policy": "compact"})
    keys: set[bytes] = set()
    with CompactedReader(headrace_kafka.quiet, topic, lambda key, _value: keys.add(key)) as reader:
        assert reader.caught_up.wait(TIMEOUT_SECONDS)
        headrace_kafka.grow(topic, 2)
        headrace_kafka.fill(topic, 3, partition=1)
        wait_until(lambda: keys == {b"k0", b"k1", b"k2"})


def test_a_record_that_is_refused_stops_nothing(
    headrace_kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = headrace_kafka.topic("refused")
    with Producer(headrace_kafka.quiet) as producer:
        producer.send(topic, "passed over, it has no key")
    headrace_kafka.fill(topic, 3)
    seen: list[bytes] = []

    def refuse_one(key: bytes, _value: bytes | None) -> None:
        if key == b"k1":
            raise ValueError("not this one")
        seen.append(key)

    with CompactedReader(headrace_kafka.quiet, topic, refuse_one) as reader:
        assert reader.caught_up.wait(TIMEOUT_SECONDS)
    assert seen == [b"k0", b"k2"]
    assert f"on_record failed for {topic}/0/2" in caplog.text

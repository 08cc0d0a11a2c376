"""Values to bytes and back, and what happens to those that cannot be."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.client.kafkas import Kafka, read_records
from tests.waiting import wait_until

from headrace.client import Consumer, Producer
from headrace.client.errors import UndecodableRecord, UnknownSetting
from headrace.client.serializers import PAIRS, deserializer, serializer

JAVA = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("string", "grün", "grün".encode()),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("json", {"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
        # As Java's DataOutput writes them.
        ("short", -2, b"\xff\xfe"),
        ("integer", 258, b"\x00\x00\x01\x02"),
        ("long", -1, b"\xff" * 8),
        ("float", 1.5, b"\x3f\xc0\x00\x00"),
        ("double", 1.5, b"\x3f\xf8" + b"\x00" * 6),
        ("uuid", uuid.UUID(int=7), b"00000000-0000-0000-0000-000000000007"),
    ],
)
def test_each_writes_what_java_writes_and_reads_it(name: str, value: Any, data: bytes) -> None:
    write, read = serializer(name), deserializer(name)
    assert write is not None
    assert read is not None
    assert write(value) == data
    assert read(data) == value


def test_kafkas_class_names_are_known() -> None:
    assert serializer(f"{JAVA}StringSerializer") is PAIRS["string"][0]
    assert deserializer(f"{JAVA}LongDeserializer") is PAIRS["long"][1]
    assert serializer(f"{JAVA}ByteArraySerializer") is PAIRS["bytes"][0]
    assert serializer("json:dumps") is not None
    for wrong in ("xml", "json:nothing", "nowhere.at.all:x"):
        with pytest.raises(UnknownSetting, match=wrong.partition(":")[0]):
            serializer(wrong)


def test_objects_come_back_as_they_were_sent(kafka: Kafka) -> None:
    topic = kafka.topic("objects")
    settings = {**kafka.quiet, "key.serializer": "long"}
    with Producer(settings, value_serializer="json") as producer:
        producer.send(topic, {"amount": 12}, key=7)
        # A tombstone stays one.
        producer.send(topic, None, key=8)
    reading = {**kafka.quiet, "key.deserializer": f"{JAVA}LongDeserializer"}
    with Consumer(reading, value_deserializer="json", start="earliest") as consumer:
        consumer.assign(topic)
        found = [(it.key(), it.value()) for it in read_records(consumer, 2)]
    assert found == [(7, {"amount": 12}), (8, None)]


def test_a_value_that_cannot_be_written_is_an_error_of_send(headrace_kafka: Kafka) -> None:
    with (
        Producer(headrace_kafka.quiet, value_serializer="json") as producer,
        pytest.raises(TypeError),
    ):
        producer.send("nowhere", object())


def test_an_undecodable_record_is_told_and_passed(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("bad")
    with Producer(headrace_kafka.quiet) as producer:
        for value in ("1", "not json", "2"):
            producer.send(topic, value)
    with Consumer(headrace_kafka.quiet, value_deserializer="json", start="earliest") as consumer:
        consumer.assign(topic)
        found: list[Any] = []

        def read_one() -> bool:
            record = consumer.poll(0.1)
            if record is not None:
                found.append(record.value())
            return bool(found)

        wait_until(read_one)
        with pytest.raises(UndecodableRecord, match=f"{topic}/0/1") as caught:
            wait_until(lambda: consumer.poll(0.1))
        assert caught.value.record.value() == b"not json"
        wait_until(lambda: read_one() and len(found) == 2)
        assert found == [1, 2]
        consumer.seek(topic, 0, "earliest")
        many = read_records(consumer, 3)
        assert [it.value() for it in many] == [1, b"not json", 2]
        assert [it.error() is None for it in many] == [True, False, True]

"""The delay service on real brokers: by the API and by the headers of a stock client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as StockProducer
from confluent_kafka.admin import ConfigResource, ResourceType
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.ledger.delay.reading import read_all
from tests.waiting import wait_until

from headrace.client import Producer
from headrace.client.admin.topics import admin_client
from headrace.ledger.delay.service import pending
from headrace.ledger.service import LedgerService


@pytest.fixture(scope="module")
def producer(kafka: Kafka, service: LedgerService) -> Iterator[Producer]:
    with Producer(kafka.quiet) as producer:
        yield producer


@pytest.fixture
def topic(kafka: Kafka, service: LedgerService) -> str:
    return kafka.topic("target")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def stock(kafka: Kafka, headers: list[tuple[str, bytes | str | None]], value: bytes = b"v") -> None:
    producer = StockProducer(kafka.quiet)
    producer.produce("headrace.delay", value, b"key", headers=headers)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def test_a_message_arrives_after_its_delay_and_unchanged(
    kafka: Kafka, producer: Producer, topic: str
) -> None:
    sent_ms = now_ms()
    producer.send_and_wait(topic, b"hello", key=b"k", headers={"x": b"1"}, after="700ms")
    [record] = kafka.read(topic, 1)
    assert now_ms() >= sent_ms + 700
    assert (record.key(), record.value()) == (b"k", b"hello")
    names = [name for name, _ in record.headers()]
    assert names == ["x", "headrace-id"]


def test_a_null_value_arrives_as_one(kafka: Kafka, producer: Producer, topic: str) -> None:
    producer.send_and_wait(topic, None, key=b"gone", at=now_ms())
    [record] = kafka.read(topic, 1)
    assert (record.key(), record.value()) == (b"gone", None)


def test_messages_come_in_the_order_of_their_times(
    kafka: Kafka, producer: Producer, topic: str
) -> None:
    due_ms = now_ms() + 1_500
    for number in (4, 2, 0, 3, 1):
        producer.send(topic, b"%d" % number, at=due_ms + 200 * number)
    producer.flush()
    assert [record.value() for record in kafka.read(topic, 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_stock_client_delays_by_headers_alone(kafka: Kafka, topic: str) -> None:
    headers: list[tuple[str, bytes | str | None]] = [
        ("headrace-target", topic),
        ("headrace-id", uuid.uuid4().hex),
        ("headrace-delay", "300ms"),
        ("other", None),
    ]
    sent_ms = now_ms()
    stock(kafka, headers)
    [record] = kafka.read(topic, 1)
    assert now_ms() >= sent_ms + 300
    assert (record.key(), record.value()) == (b"key", b"v")
    assert record.headers()[-1] == ("other", None)


def test_a_cancelled_message_never_comes(
    kafka: Kafka, producer: Producer, service: LedgerService, topic: str
) -> None:
    id = uuid.uuid4().hex
    producer.send(topic, b"never", headers={"headrace-id": id}, after="1h")
    producer.send(topic, b"after", headers={"headrace-id": f"{id}-2"}, after="1h")
    producer.flush()
    wait_until(lambda: [*pending(kafka.quiet, id)])
    producer.cancel_delayed(id)
    producer.flush()
    wait_until(lambda: not [*pending(kafka.quiet, id)])
    producer.send_and_wait(topic, b"after", headers={"headrace-id": f"{id}-2"}, at=0)
    assert [record.value() for record in kafka.read(topic, 1)] == [b"after"]


def test_a_second_message_with_the_same_id_takes_the_place_of_the_first(
    kafka: Kafka, producer: Producer, topic: str
) -> None:
    id = uuid.uuid4().hex
    for value, after in ((b"first", "1h"), (b"second", "2h"), (b"third", "100ms")):
        producer.send(topic, value, headers={"headrace-id": id}, after=after)
    producer.flush()
    assert [record.value() for record in kafka.read(topic, 1)] == [b"third"]
    wait_until(lambda: not [*pending(kafka.quiet, id)])


def test_bad_headers_go_to_the_dead_letters_with_the_reason(kafka: Kafka, topic: str) -> None:
    value = uuid.uuid4().bytes
    stock(kafka, [("headrace-target", topic), ("headrace-delay", "soon")], value)

    def letters() -> list[dict[str, bytes]]:
        records = read_all(kafka, "headrace.delay.dlq")
        return [dict(record.headers()) for record in records if record.value() == value]

    wait_until(letters)
    [headers] = letters()
    assert b"not a duration" in headers["headrace-error"]
    assert headers["headrace-source"].startswith(b"headrace.delay/")
    assert headers["headrace-delay"] == b"soon"


def test_a_transaction_that_is_aborted_delays_nothing(
    kafka: Kafka, service: LedgerService, topic: str
) -> None:
    with Producer({**kafka.quiet, "transactional.id": uuid.uuid4().hex}) as producer:
        producer.init_transactions(TIMEOUT_SECONDS)
        producer.begin()
        producer.send(topic, b"aborted", at=0)
        producer.flush()
        producer.abort()
        producer.begin()
        producer.send(topic, b"committed", at=0)
        producer.commit()
    assert [record.value() for record in kafka.read(topic, 1)] == [b"committed"]


def test_the_topics_are_made_as_they_must_be(kafka: Kafka, service: LedgerService) -> None:
    asked = {
        "headrace.delay": ("message.timestamp.type", "LogAppendTime"),
        "headrace.delay.state": ("cleanup.policy", "compact"),
    }
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in asked]
    admin = admin_client(kafka.quiet)
    for resource, future in admin.describe_configs(resources).items():
        name, value = asked[resource.name]
        assert future.result(TIMEOUT_SECONDS)[name].value == value

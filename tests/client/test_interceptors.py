"""Interceptors: in the given order, and unable to break anything."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka, read_values, values
from tests.waiting import wait_until

from headrace.client import (
    Consumer,
    ConsumerInterceptor,
    Producer,
    ProducerInterceptor,
    RecordMetadata,
)
from headrace.client.interceptors import Outgoing


class Stamp(ProducerInterceptor):
    """Adds a letter to the value and notes what it is told."""

    def __init__(self, letter: str, notes: list[Any]) -> None:
        self.letter = letter
        self.notes = notes

    def on_send(self, record: Outgoing) -> Outgoing | None:
        self.notes.append((self.letter, "send"))
        record.value += self.letter
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.notes.append((self.letter, "error" if error else metadata and metadata.offset))

    def close(self) -> None:
        self.notes.append((self.letter, "close"))


class Broken:
    """Fails whatever it is asked."""

    def on_send(self, record: Outgoing) -> Outgoing:
        record.headers = [("seen", b"1")]
        raise RuntimeError("on_send is broken")

    def on_acknowledgement(self, *_: Any) -> None:
        raise RuntimeError("on_acknowledgement is broken")

    def on_consume(self, _records: list[Any]) -> list[Any]:
        raise RuntimeError("on_consume is broken")

    def on_commit(self, _offsets: list[Any]) -> None:
        raise RuntimeError("on_commit is broken")


class Reader(ConsumerInterceptor):
    """Leaves out the values it does not like and notes what is committed."""

    def __init__(self) -> None:
        self.committed: list[tuple[str, int]] = []
        self.seen: list[str] = []

    def on_consume(self, records: list[Any]) -> list[Any] | None:
        self.seen += values(records)
        return [it for it in records if it.value() != b"v1"]

    def on_commit(self, offsets: list[Any]) -> None:
        self.committed += [(it.topic, it.offset) for it in offsets]


def test_records_pass_all_of_them_in_order(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.topic("passing")
    notes: list[Any] = []
    chain = (Stamp("a", notes), Broken(), Stamp("b", notes))
    with Producer(kafka.quiet, interceptors=chain) as producer:
        producer.send(topic, "v").result(TIMEOUT_SECONDS)
    assert values(kafka.read(topic, 1)) == ["vab"]
    expected = ["send", "send", 0, 0, "close", "close"]
    assert notes == list(zip("ab" * 3, expected, strict=True))
    assert "interceptor Broken failed in on_send" in caplog.text
    assert "on_acknowledgement is broken" in caplog.text


def refuse(_value: Any) -> bytes:
    raise ZeroDivisionError


def test_a_record_that_fails_on_the_way_is_acknowledged_as_an_error(
    headrace_kafka: Kafka,
) -> None:
    notes: list[Any] = []
    with (
        Producer(
            headrace_kafka.quiet, value_serializer=refuse, interceptors=[Stamp("a", notes)]
        ) as producer,
        pytest.raises(ZeroDivisionError),
    ):
        producer.send("anywhere", "v")
    assert notes == [("a", "send"), ("a", "error"), ("a", "close")]


def test_interceptors_are_named_as_kafka_names_classes(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("named")
    name = f"{__name__}:Quiet"
    with Producer({**headrace_kafka.quiet, "interceptor.classes": name}) as producer:
        producer.send_and_wait(topic, "v")
    assert Quiet.acknowledged == [topic]


class Quiet(ProducerInterceptor):
    """Made by its name."""

    acknowledged: list[str] = []  # noqa: RUF012 - every instance notes here.

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        assert metadata is not None
        self.acknowledged.append(metadata.topic)


def test_what_is_read_and_committed_passes_too(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic("read")
    kafka.fill(topic, 3)
    reader = Reader()
    with Consumer(
        {**kafka.quiet, "enable.auto.commit": False},
        group=f"g-{topic}",
        start="earliest",
        interceptors=[Broken(), reader],
    ) as consumer:
        consumer.subscribe(topic)
        assert read_values(consumer, 2) == ["v0", "v2"]
        assert reader.seen == ["v0", "v1", "v2"]
        consumer.commit_sync({(topic, 0): 1})
        consumer.commit_async({(topic, 0): 3})
        wait_until(lambda: consumer.poll(0.05) or (topic, 3) in reader.committed)
    # The first is where the group begins, written down when it was given the partition.
    assert reader.committed == [(topic, 0), (topic, 1), (topic, 3)]
    assert "on_consume is broken" in caplog.text
    assert "on_commit is broken" in caplog.text

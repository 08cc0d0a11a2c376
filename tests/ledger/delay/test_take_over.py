"""Instances of the delay service that share the work, and take over from each other."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer as TransactionalProducer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.client.kafkas import LIVELY, TIMEOUT_SECONDS, Kafka
from tests.ledger.delay.reading import read_all
from tests.waiting import wait_until

from headrace.client import Producer
from headrace.client.admin.topics import admin_client
from headrace.ledger import clients, intake, owner, targets
from headrace.ledger.delay.service import delay_service, pending
from headrace.ledger.service import LedgerService
from headrace.telemetry.alarms import Alarm, Alarms
from headrace.testing import BrokerThread


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


@pytest.fixture
def notes(kafka: Kafka) -> str:
    return kafka.topic("notes")


@contextmanager
def running(kafka: Kafka, **options: Any) -> Iterator[LedgerService]:
    service = delay_service({**kafka.quiet, **LIVELY}, **options)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def send_all(kafka: Kafka, topic: str, count: int, **options: Any) -> None:
    with Producer(kafka.quiet) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, **options)


def values(kafka: Kafka, topic: str) -> list[int]:
    return sorted(int(record.value()) for record in read_all(kafka, topic))


def test_two_instances_share_the_partitions_and_one_takes_all_when_the_other_leaves(
    kafka: Kafka, notes: str
) -> None:
    with running(kafka) as first:
        assert first.wait_ready(TIMEOUT_SECONDS)
        wait_until(lambda: first.stats.owned == 4)
        with running(kafka) as second:
            wait_until(lambda: (first.stats.owned, second.stats.owned) == (2, 2))
            send_all(kafka, notes, 200, after="100ms")
            kafka.read(notes, 200)
            wait_until(lambda: first.stats.acted + second.stats.acted == 200)
            assert first.stats.acted
            assert second.stats.acted
        wait_until(lambda: first.stats.owned == 4)
        send_all(kafka, notes, 10, after="100ms")
        kafka.read(notes, 210)
        assert len(values(kafka, notes)) == 210


def test_a_transaction_that_nobody_ends_is_told(
    kafka: Kafka, notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "STUCK_SECONDS", 1.5)
    rung: list[Alarm] = []
    alarms = Alarms()
    alarms.add(rung.append)
    with running(kafka, alarms=alarms) as service:
        assert service.wait_ready(TIMEOUT_SECONDS)
        wait_until(lambda: service.stats.owned == 4)
        stranger = TransactionalProducer({**kafka.quiet, "transactional.id": "stranger"})
        stranger.init_transactions(TIMEOUT_SECONDS)
        stranger.begin_transaction()
        for partition in range(4):
            stranger.produce("headrace.delay.state", b"", b"key", partition)
        assert stranger.flush(TIMEOUT_SECONDS) == 0
        send_all(kafka, notes, 1, after="1ms")
        wait_until(lambda: len(rung) == 4)
        assert {alarm.name for alarm in rung} == {"delay-held"}
        assert "headrace txn hanging" in rung[0].text
        stranger.abort_transaction(TIMEOUT_SECONDS)
        assert len(kafka.read(notes, 1)) == 1
    assert len(rung) == 4


def test_what_waited_while_no_service_ran_is_delivered_by_the_next(
    kafka: Kafka, notes: str
) -> None:
    with running(kafka) as first:
        assert first.wait_ready(TIMEOUT_SECONDS)
        send_all(kafka, notes, 50, after="2s")
        wait_until(lambda: first.stats.taken == 50)
    send_all(kafka, notes, 1, after="1ms")
    with running(kafka):
        kafka.read(notes, 51)
        wait_until(lambda: not [*pending(kafka.quiet)])
    assert len(values(kafka, notes)) == 51


def test_an_owner_that_was_fenced_starts_anew_and_delivers_nothing_twice(
    kafka: Kafka, notes: str
) -> None:
    with running(kafka) as service:
        assert service.wait_ready(TIMEOUT_SECONDS)
        send_all(kafka, notes, 20, after="1s")
        wait_until(lambda: service.stats.pending == 20)
        usurpers = [
            clients.producer(kafka.quiet, f"headrace.delay.state-{number}") for number in range(4)
        ]
        assert usurpers
        kafka.read(notes, 20)
        wait_until(lambda: not [*pending(kafka.quiet)])
    assert values(kafka, notes) == list(range(20))


def test_a_topic_that_takes_nothing_now_holds_nobody_up(
    kafka: Kafka, notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MESSAGE_MS", 1_000)
    monkeypatch.setattr(targets, "PAUSE_SECONDS", 1.0)
    monkeypatch.setattr(targets, "PAUSE_SECONDS_MAX", 2.0)
    stuck = kafka.topic("stuck", config={"min.insync.replicas": "2"})
    with running(kafka) as service:
        assert service.wait_ready(TIMEOUT_SECONDS)
        send_all(kafka, stuck, 8, after="100ms")
        send_all(kafka, notes, 40, after="200ms")
        kafka.read(notes, 40)
        send_all(kafka, notes, 40, after="1ms")
        kafka.read(notes, 80)
        assert len([*pending(kafka.quiet)]) == 8
        admin = admin_client(kafka.quiet)
        entry = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, stuck, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([change]).values():
            done.result(TIMEOUT_SECONDS)
        kafka.read(stuck, 8)
        wait_until(lambda: not [*pending(kafka.quiet)])
    assert values(kafka, stuck) == list(range(8))


def test_a_command_that_cannot_be_read_or_kept_holds_no_other_up(kafka: Kafka, notes: str) -> None:
    from kafka import KafkaProducer

    class Odd(str):
        """The name of a header that is no text."""

        def encode(self, encoding: str = "", errors: str = "") -> bytes:
            return b"\xff\xfe"

    with running(kafka) as service:
        assert service.wait_ready(TIMEOUT_SECONDS)
        # As if an administrator had done it, after the service made it as it needs it.
        admin = admin_client(kafka.quiet)
        entry = ConfigEntry(
            "max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET
        )
        state = ConfigResource(
            ResourceType.TOPIC, "headrace.delay.state", incremental_configs=[entry]
        )
        for done in admin.incremental_alter_configs([state]).values():
            done.result(TIMEOUT_SECONDS)
        other = KafkaProducer(bootstrap_servers=kafka.bootstrap)
        other.send("headrace.delay", b"200", headers=[(Odd("x"), b"1")]).get(TIMEOUT_SECONDS)
        other.close()
        with Producer(kafka.quiet) as producer:
            producer.send(notes, b"1", after="10ms")
            producer.send(notes, b"%03000d" % 300, after="10ms")
            producer.send(notes, b"2", after="10ms")
        kafka.read(notes, 2)
        kafka.read("headrace.delay.dlq", 2)
    assert values(kafka, notes) == [1, 2]
    assert values(kafka, "headrace.delay.dlq") == [200, 300]


def test_a_bad_target_is_a_dead_letter_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "PATIENCE_SECONDS", 1.0)
    rung: list[Alarm] = []
    alarms = Alarms()
    alarms.add(rung.append)
    with BrokerThread({"auto.create.topics.enable": "false"}) as broker:
        kafka = Kafka("headrace", broker.bootstrap)
        good = kafka.topic("good")
        small = kafka.topic("small", config={"max.message.bytes": "500"})
        with running(kafka, alarms=alarms), Producer(kafka.quiet) as producer:
            for number in range(30):
                producer.send(good, b"%d" % number, after="1s")
            producer.send("nowhere", b"100", key=b"k", headers={"x": b"1"}, after="1s")
            producer.send(small, b"%0900d" % 101, after="1s")
            producer.send(small, b"102", after="1s")
            producer.flush()
            kafka.read(good, 30)
            kafka.read(small, 1)
            kafka.read("headrace.delay.dlq", 2)
        assert values(kafka, good) == list(range(30))
        assert values(kafka, small) == [102]
        letters = {int(it.value()): it for it in read_all(kafka, "headrace.delay.dlq")}
        headers = dict(letters[100].headers())
        assert headers["x"] == b"1"
        assert headers["headrace-target"] == b"nowhere"
        assert headers["headrace-error"].startswith(b"nowhere refuses it: ")
        assert dict(letters[101].headers())["headrace-target"] == small.encode()
    assert [alarm.name for alarm in rung] == ["delay-dead-letter"] * 2


def test_a_broker_that_goes_and_comes_back_loses_and_repeats_nothing() -> None:
    with BrokerThread() as broker:
        kafka = Kafka("headrace", broker.bootstrap)
        notes = kafka.topic("notes")
        with running(kafka) as service:
            assert service.wait_ready(TIMEOUT_SECONDS)
            send_all(kafka, notes, 50, after="1s")
            wait_until(lambda: service.stats.pending == 50)
            broker.stop()
            broker.start()
            kafka.read(notes, 50)
            wait_until(lambda: not [*pending(kafka.quiet)])
        assert values(kafka, notes) == list(range(50))


def test_commands_that_were_taken_in_are_deleted(
    kafka: Kafka, notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    monkeypatch.setattr(intake, "TRIM_SECONDS", 0.1)
    consumer = Consumer({**kafka.quiet, "group.id": "looking"})

    def kept() -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(TopicPartition("headrace.delay", 0), 30)
        return low, high

    with running(kafka):
        send_all(kafka, notes, 20, after="1h")
        wait_until(lambda: kept() == (20, 20))
    consumer.close()
    assert len([*pending(kafka.quiet)]) == 20


def test_a_topic_that_a_client_made_by_itself_is_put_right(kafka: Kafka, notes: str) -> None:
    """Its records have the client's time, which nothing is counted from."""
    from confluent_kafka import Producer as StockProducer

    stock = StockProducer(kafka.quiet)
    sent_ms = time.time_ns() // 1_000_000
    headers = [
        ("headrace-target", notes.encode()),
        ("headrace-id", uuid.uuid4().bytes.hex().encode()),
        ("headrace-delay", b"300ms"),
    ]
    stock.produce("headrace.delay", b"1", headers=headers, timestamp=sent_ms - 3_600_000)
    assert stock.flush(TIMEOUT_SECONDS) == 0
    with running(kafka):
        kafka.read(notes, 1)
    [record] = read_all(kafka, notes)
    assert record.timestamp()[1] >= sent_ms + 300

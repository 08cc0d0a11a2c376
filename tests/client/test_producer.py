"""Sending: forgotten, waited for, called back, awaited; full buffers, transactions, closing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaException
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka, read_records, values
from tests.waiting import wait_until

from headrace.client import Consumer, Producer, RecordMetadata
from headrace.client.errors import BufferFull, DeliveryFailed, RecordTooLarge
from headrace.testing import BrokerThread

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_fire_and_forget_is_sent_by_closing(kafka: Kafka) -> None:
    topic = kafka.topic("forgotten")
    with Producer(kafka.quiet) as producer:
        for number in range(1000):
            producer.send(topic, f"{number}")
    assert values(kafka.read(topic, 1000)) == [f"{number}" for number in range(1000)]


def test_waiting_says_where_the_record_is(kafka: Kafka) -> None:
    topic = kafka.topic("waited", 2)
    with Producer(kafka.quiet) as producer:
        found = producer.send_and_wait(
            topic, b"v", key="k", headers={"a": b"1"}, partition=1, timestamp_ms=12345
        )
        assert found == RecordMetadata(topic, 1, 0, 12345)
        assert producer.send(topic, "w", partition=1).result(TIMEOUT_SECONDS).offset == 1
    first, second = kafka.read(topic, 2)
    assert (first.key(), first.headers(), first.timestamp()[1]) == (b"k", [("a", b"1")], 12345)
    assert (second.key(), second.headers()) == (None, None)


def test_a_callback_gets_metadata_or_the_error(kafka: Kafka) -> None:
    topic = kafka.topic("called")
    outcomes: list[Any] = []
    with Producer({**kafka.quiet, "delivery.timeout.ms": 2000}) as producer:
        # What the partitions are is not known yet: that there is no such one comes back later.
        lost = producer.send(
            topic, "v", partition=7, on_delivery=lambda *outcome: outcomes.append(outcome)
        )
        with pytest.raises(DeliveryFailed, match=topic):
            lost.result(TIMEOUT_SECONDS)
        assert isinstance(lost.exception(), KafkaException)
        written = producer.send(topic, "v", on_delivery=lambda *outcome: outcomes.append(outcome))
        assert written.result(TIMEOUT_SECONDS).offset == 0
        with pytest.raises(DeliveryFailed, match="Unknown partition"):
            producer.send(topic, "v", partition=7)
    (nothing, error), (metadata, none) = outcomes
    assert (nothing, none) == (None, None)
    assert isinstance(error, DeliveryFailed)
    assert (metadata.topic, metadata.offset) == (topic, 0)


def test_a_callback_that_fails_is_logged_and_harms_nobody(
    headrace_kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = headrace_kafka.topic("callbacks")
    with Producer(headrace_kafka.quiet) as producer:
        sent = producer.send(topic, "v", on_delivery=lambda *_: 1 / 0)
        assert sent.result(TIMEOUT_SECONDS).offset == 0
        assert sent.done()
        assert sent.exception() is None
    assert "callback of a record" in caplog.text


def test_awaiting_many_at_once(kafka: Kafka) -> None:
    topic = kafka.topic("awaited")

    async def send_all(producer: Producer) -> list[RecordMetadata]:
        sent = [producer.send(topic, f"{number}") for number in range(200)]
        found = [await one for one in sent]
        # A second look needs no wait.
        assert await sent[0] == found[0]
        return found

    with Producer(kafka.quiet) as producer:
        found = asyncio.run(send_all(producer))
    assert [it.offset for it in found] == list(range(200))


def test_a_cancelled_await_changes_nothing_about_the_record(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("cancelled")

    async def give_up(producer: Producer) -> Any:
        sent = producer.send(topic, "v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sent
        return sent

    with Producer(kafka.quiet) as producer:
        broker.faults.delay("Produce", 0.3)
        sent = asyncio.run(give_up(producer))
        with pytest.raises(TimeoutError):
            sent.result(0.01)
        assert sent.result(TIMEOUT_SECONDS).offset == 0


def test_many_threads_send_and_wait(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("threads")
    offsets: list[int] = []
    with Producer({**headrace_kafka.quiet, "linger.ms": 0}) as producer:

        def work() -> None:
            offsets.extend(
                producer.send_and_wait(topic, "v", timeout=TIMEOUT_SECONDS).offset
                for _ in range(50)
            )

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(offsets) == list(range(200))


def test_a_lost_connection_loses_and_repeats_nothing(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("once")
    with Producer(kafka.quiet) as producer:
        producer.send_and_wait(topic, "first")
        lost = broker.faults.drop("Produce")
        producer.send(topic, "second")
        producer.flush()
        assert lost.hits == 1
    assert values(kafka.read(topic, 2)) == ["first", "second"]


def test_a_full_buffer_blocks_until_there_is_room(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("full")
    settings = {**kafka.quiet, "buffer.memory": 4096, "linger.ms": 0}
    with Producer(settings) as producer:
        producer.send_and_wait(topic, "warm")
        delayed = broker.faults.delay("Produce", 0.5)
        sent = [producer.send(topic, b"x" * 1000) for _ in range(20)]
        assert delayed.hits == 1, "the last of them waited for the first"
        assert [it.result(TIMEOUT_SECONDS).offset for it in sent] == list(range(1, 21))


def test_a_full_buffer_is_an_error_after_max_block_ms() -> None:
    settings = {**NOBODY, "buffer.memory": 4096, "max.block.ms": 50, "delivery.timeout.ms": 300}
    with Producer(settings) as producer:
        for _ in range(4):
            producer.send("t", b"x" * 1000)
        with pytest.raises(BufferFull, match=r"50 ms \(max\.block\.ms\)"):
            producer.send("t", b"x" * 1000)
        assert producer.flush(TIMEOUT_SECONDS) == 0


def test_a_record_above_max_request_size_is_refused(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("large")
    with Producer({**headrace_kafka.quiet, "max.request.size": 2000}) as producer:
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            producer.send(topic, b"x" * 3000)
        producer.send_and_wait(topic, b"x" * 1000)


def test_failures_that_nobody_waits_for_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Producer({**NOBODY, "delivery.timeout.ms": 200}) as producer:
        producer.send("t", "v")
        producer.flush(TIMEOUT_SECONDS)
        wait_until(lambda: "records not written" in caplog.text)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"acks": "all"}, True),
        ({"acks": 1}, False),
        ({"retries": 0}, False),
        ({"max.in.flight.requests.per.connection": 10}, False),
    ],
)
def test_idempotence_is_on_unless_another_setting_rules_it_out(
    settings: dict[str, Any], expected: bool
) -> None:
    from headrace.client.producer import _defaults

    assert _defaults(settings)["enable.idempotence"] is expected
    Producer({**NOBODY, **settings}).close()


def test_asking_for_what_rules_itself_out_is_an_error() -> None:
    with pytest.raises(KafkaException, match="acks"):
        Producer({**NOBODY, "acks": 1, "enable.idempotence": True})


def test_a_transaction_moves_records_and_offsets_together(kafka: Kafka) -> None:
    source, target = kafka.topic("source"), kafka.topic("target")
    kafka.fill(source, 3)
    group = f"mover-{source}"
    settings = {**kafka.quiet, "enable.auto.commit": False}
    with (
        Producer({**kafka.quiet, "transactional.id": f"tx-{target}"}) as producer,
        Consumer(settings, group=group, start="earliest") as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(source)
        records = read_records(consumer, 3)
        producer.begin()
        producer.send(target, "undone")
        producer.send_offsets({(source, 0): 3}, consumer.group_metadata())
        producer.abort()
        assert consumer.committed([(source, 0)]) == {(source, 0): 0}
        producer.begin()
        for record in records:
            producer.send(target, record.value())
        producer.send_offsets({(source, 0): 3}, consumer.group_metadata())
        producer.commit()
        assert consumer.committed([(source, 0)]) == {(source, 0): 3}
    assert values(kafka.read(target, 3)) == ["v0", "v1", "v2"]


def test_closing_aborts_an_open_transaction_and_closes_once(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("open")
    producer = Producer({**headrace_kafka.quiet, "transactional.id": f"tx-{topic}"})
    producer.init_transactions()
    producer.begin()
    producer.send(topic, "undone")
    producer.close()
    producer.close()
    with Producer(headrace_kafka.quiet) as after:
        after.send_and_wait(topic, "done")
    assert values(headrace_kafka.read(topic, 1)) == ["done"]
    with pytest.raises(RuntimeError):
        producer.send(topic, "late")

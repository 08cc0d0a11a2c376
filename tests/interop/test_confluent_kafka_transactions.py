"""Transactions with confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from tests.interop.cases import Case, Observed, Task, cases_without, observer, settled
from tests.interop.confluent import SECONDS_MAX, consuming, poll, send, text
from tests.interop.stage import Stage
from tests.interop.transaction_cases import BEFORE_KIP_890, TRANSACTION_CASES

LACKS = BEFORE_KIP_890
FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


@pytest.mark.parametrize("case", cases_without(LACKS, TRANSACTION_CASES), ids=str)
def test_confluent_kafka_transactions(case: Case, stage: Stage) -> None:
    task = stage.prepare("confluent-kafka", [case])[case.name]
    case.check(observer(globals(), case)(task), task)


def commit(task: Task) -> Observed:
    producer = _producer(task)
    producer.begin_transaction()
    send(producer, task.topic, "a")
    send(producer, task.topic, "b")
    plain = Producer({"bootstrap.servers": task.bootstrap})
    plain.produce(task.topic, b"plain", partition=1)
    assert plain.flush(SECONDS_MAX) == 0
    while_open = _values(task, "committed", until="plain", partitions=2)
    uncommitted = _values(task, "uncommitted", until="b")
    producer.commit_transaction(SECONDS_MAX)
    return {
        "open": while_open,
        "uncommitted": uncommitted,
        "committed": _values(task, "committed", until="b"),
    }


def abort(task: Task) -> Observed:
    producer = _producer(task)
    producer.begin_transaction()
    send(producer, task.topic, "a")
    send(producer, task.topic, "b")
    producer.abort_transaction(SECONDS_MAX)
    _transaction(producer, task, "last")
    return _both(task)


def zombie(task: Task) -> Observed:
    first = _producer(task)
    first.begin_transaction()
    send(first, task.topic, "zombie")
    second = _producer(task)
    _transaction(second, task, "new")
    fenced = False
    try:
        first.produce(task.topic, b"late", partition=0)
        first.commit_transaction(SECONDS_MAX)
    except KafkaException as error:
        fenced = error.args[0].code() in FENCED
    _transaction(second, task, "last")
    return {"fenced": fenced, **_both(task)}


def consume_process_produce(task: Task) -> Observed:
    producer = _producer(task)
    with _worker(task) as consumer:
        _copy(task, consumer, producer, 5)
        while_open = _committed(task)
        producer.abort_transaction(SECONDS_MAX)
    after_abort = _committed_in_the_end(task, None)
    with _worker(task) as consumer:
        _copy(task, consumer, producer, 5)
        producer.commit_transaction(SECONDS_MAX)
    after_commit = _committed_in_the_end(task, 5)
    with _worker(task) as consumer:
        producer = _producer(task)
        resumed_at = _copy(task, consumer, producer, 5)
        producer.commit_transaction(SECONDS_MAX)
    return {
        "while_open": while_open,
        "after_abort": after_abort,
        "after_commit": after_commit,
        "resumed_at": resumed_at,
        "at_end": _committed_in_the_end(task, 10),
        "outputs": _values(task, "committed", until="0-9", topic=task.out),
    }


def epoch_kept(task: Task) -> Observed:
    producer = _producer(task)
    for value in ("one", "two", "three"):
        _transaction(producer, task, value)
    return {"values": _values(task, "committed", until="three")}


def _producer(task: Task) -> Producer:
    producer = Producer({"bootstrap.servers": task.bootstrap, "transactional.id": task.topic})
    producer.init_transactions(SECONDS_MAX)
    return producer


def _transaction(producer: Producer, task: Task, value: str) -> None:
    producer.begin_transaction()
    producer.produce(task.topic, value.encode(), partition=0)
    producer.commit_transaction(SECONDS_MAX)


@contextmanager
def _worker(task: Task) -> Iterator[Consumer]:
    with consuming(task) as consumer:
        consumer.subscribe([task.topic])
        yield consumer


def _copy(task: Task, consumer: Consumer, producer: Producer, count: int) -> int | None:
    """Copy inputs to the output in a transaction that is left open; the offset of the first."""
    producer.begin_transaction()
    messages = [poll(consumer) for _ in range(count)]
    for message in messages:
        producer.produce(task.out, message.value(), partition=0)
    offsets = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS_MAX)
    offset: int | None = messages[0].offset()
    return offset


def _committed(task: Task) -> int | None:
    """The offset of the group, as one sees it who does not wait for open transactions."""
    admin = AdminClient({"bootstrap.servers": task.bootstrap})
    asked = ConsumerGroupTopicPartitions(task.topic, [TopicPartition(task.topic, 0)])
    answer = admin.list_consumer_group_offsets([asked])[task.topic].result(SECONDS_MAX)
    offset: int = answer.topic_partitions[0].offset
    return offset if offset >= 0 else None


def _committed_in_the_end(task: Task, wanted: int | None) -> int | None:
    """Markers are written after the answer to the producer."""
    return settled(lambda: _committed(task), wanted)


def _both(task: Task) -> Observed:
    return {kind: _values(task, kind, until="last") for kind in ("committed", "uncommitted")}


def _values(
    task: Task, isolation: str, *, until: str, partitions: int = 1, topic: str | None = None
) -> list[str]:
    """All values up to this one, as a consumer of this isolation gets them."""
    values: list[str] = []
    with consuming(task, isolation_level=f"read_{isolation}") as consumer:
        consumer.assign(
            [
                TopicPartition(topic or task.topic, partition, OFFSET_BEGINNING)
                for partition in range(partitions)
            ]
        )
        while until not in values:
            values.append(text(poll(consumer)))
    return values

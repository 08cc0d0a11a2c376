"""A sink's task against real brokers: written once, fenced, whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.client.kafkas import Kafka, values

from headrace.spark.errors import CheckpointTooOld, SinkError
from headrace.spark.sink.markers import marker_name
from headrace.spark.sink.options import SinkOptions, read_options
from headrace.spark.sink.transaction import SinkTransaction
from headrace.spark.sink.writers import write_once


def batch(*texts: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"value": list(texts), **columns})


def options(kafka: Kafka, topic: str | None) -> SinkOptions:
    given = {"kafka.bootstrap.servers": kafka.bootstrap}
    return read_options(given if topic is None else {**given, "topic": topic})


def test_a_batch_that_runs_again_is_passed_over(kafka: Kafka) -> None:
    topic = kafka.topic("once")
    sink = options(kafka, topic)
    assert write_once(sink, topic, 0, 0, iter([batch("a"), batch("b")])).records == 2
    again = write_once(sink, topic, 0, 0, iter([batch("a"), batch("b")]))
    assert (again.records, again.is_repeat) == (0, True)
    assert write_once(sink, topic, 0, 1, iter([batch("c")])).records == 1
    assert write_once(sink, topic, 1, 1, iter([batch("other task")])).records == 1
    assert values(kafka.read(topic, 4)) == ["a", "b", "c", "other task"]
    assert kafka.committed(marker_name(topic, 0, topic), topic) == 1
    with pytest.raises(CheckpointTooOld):
        write_once(sink, topic, 0, 0, iter([batch("a")]))


def test_a_task_that_fails_leaves_nothing_and_is_written_by_the_next(kafka: Kafka) -> None:
    topic = kafka.topic("failing")
    sink = options(kafka, topic)

    def breaks() -> Iterator[pa.RecordBatch]:
        yield batch("a", "b")
        raise OSError("the executor is gone")

    with pytest.raises(OSError, match="gone"):
        write_once(sink, topic, 0, 0, breaks())
    assert kafka.committed(marker_name(topic, 0, topic), topic) is None
    write_once(sink, topic, 0, 0, iter([batch("a", "b")]))
    assert values(kafka.read(topic, 2)) == ["a", "b"]


def test_an_older_attempt_is_fenced_and_cannot_commit(kafka: Kafka) -> None:
    topic = kafka.topic("zombie")
    sink = options(kafka, topic)
    name = marker_name(topic, 0, topic)
    with SinkTransaction(sink.connection, name) as zombie:
        # Large enough to be sent at once: its transaction is open at the broker.
        zombie.send(topic, batch(*["zombie" * 100_000] * 8))
        assert write_once(sink, topic, 0, 0, iter([batch("newer")])).records == 1
        with pytest.raises(SinkError):
            zombie.commit(topic, 0)
    assert values(kafka.read(topic, 1)) == ["newer"]
    assert kafka.committed(name, topic) == 0


def test_a_task_without_rows_asks_nobody(kafka: Kafka) -> None:
    topic = kafka.topic("empty")
    assert write_once(options(kafka, topic), topic, 0, 0, iter([batch()])).records == 0
    assert kafka.committed(marker_name(topic, 0, topic), topic) is None


def test_rows_name_their_topic_partition_key_and_headers(kafka: Kafka) -> None:
    first, second = kafka.topic("first", 2), kafka.topic("second")
    rows = batch(
        "a", "b", "c",
        topic=[first, second, first],
        key=["k", None, "l"],
        partition=pa.array([1, None, 1], pa.int32()),
        headers=[[{"key": "h", "value": b"1"}], None, [{"key": "n", "value": None}]],
    )  # fmt: skip
    sink = options(kafka, None)
    assert write_once(sink, first, 0, 0, iter([rows])).records == 3
    assert write_once(sink, first, 0, 0, iter([rows])).is_repeat
    found = kafka.read(first, 2)
    assert [(it.partition(), it.key(), it.value(), it.headers()) for it in found] == [
        (1, b"k", b"a", [("h", b"1")]),
        (1, b"l", b"c", [("n", None)]),
    ]
    assert values(kafka.read(second, 1)) == ["b"]


def test_a_large_batch_is_cut_into_many_and_keeps_its_order(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("large", 2)
    texts = [f"{number:06}" + "x" * (number % 500) for number in range(20_000)]
    keys = [f"k{number % 50}" for number in range(20_000)]
    rows = [
        batch(*texts[at : at + 3000], key=keys[at : at + 3000]) for at in range(0, 20_000, 3000)
    ]
    sink = options(headrace_kafka, topic)
    assert write_once(sink, topic, 0, 0, iter(rows)).records == 20_000
    found: dict[bytes, list[str]] = {}
    for record in headrace_kafka.read(topic, 20_000):
        found.setdefault(record.key(), []).append(record.value().decode())
    for key, expected in zip(keys[:50], range(50), strict=True):
        assert found[key.encode()] == texts[expected::50]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_packed_as_asked(headrace_kafka: Kafka, codec: str) -> None:
    topic = headrace_kafka.topic("packed")
    given = {"bootstrap": headrace_kafka.bootstrap, "topic": topic, "kafka.compression.type": codec}
    texts = ["again and again"] * 1000
    assert write_once(read_options(given), topic, 0, 0, iter([batch(*texts)])).records == 1000
    assert values(headrace_kafka.read(topic, 1000)) == texts


def test_the_plain_way_writes_the_same(
    headrace_kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = headrace_kafka.topic("compiled", 3), headrace_kafka.topic("plain", 3)
    texts = [None if number % 9 == 4 else f"v{number}" * (number % 30) for number in range(500)]
    keys = [None if number % 11 == 5 else f"k{number}".encode() for number in range(500)]
    rows = pa.record_batch({"value": texts, "key": keys})
    write_once(options(headrace_kafka, first), first, 0, 0, iter([rows]))
    monkeypatch.setattr("headrace.spark.sink.record_batches.kernel", None)
    write_once(options(headrace_kafka, second), second, 0, 0, iter([rows]))
    one, other = (
        sorted((it.key() or b"", it.value() or b"") for it in headrace_kafka.read(topic, 500))
        for topic in (first, second)
    )
    assert one == other
    assert {it.key(): it.partition() for it in headrace_kafka.read(first, 500) if it.key()} == {
        it.key(): it.partition() for it in headrace_kafka.read(second, 500) if it.key()
    }


def test_what_the_broker_refuses_is_explained(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("small", config={"max.message.bytes": "1000"})
    sink = options(headrace_kafka, topic)
    with pytest.raises(SinkError, match=r"max.message.bytes"):
        write_once(sink, topic, 0, 0, iter([batch("x" * 5000)]))
    rows = batch("x", partition=pa.array([3], pa.int32()))
    with pytest.raises(SinkError, match="names partition 3"):
        write_once(sink, topic, 0, 0, iter([rows]))


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_topic_of_small_messages_is_written_in_smaller_batches(
    kafka: Kafka, compression: str
) -> None:
    topic = kafka.topic("small", config={"max.message.bytes": "3000"})
    given = {"bootstrap": kafka.bootstrap, "topic": topic, "kafka.compression.type": compression}
    texts = [random.Random(number).randbytes(300).hex() for number in range(200)]
    rows = [batch(*texts[:150]), batch(*texts[150:])]
    assert write_once(read_options(given), topic, 0, 0, iter(rows)).records == 200
    assert values(kafka.read(topic, 200)) == texts


def test_batches_are_no_larger_than_asked(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("small", config={"max.message.bytes": "3000"})
    given = {"bootstrap": headrace_kafka.bootstrap, "topic": topic, "kafka.batch.size": "2500"}
    sink = read_options(given)
    with SinkTransaction(sink.connection, marker_name(topic, 0, topic)) as transaction:
        transaction.send(topic, batch(*["x" * 100] * 100))
        transaction.commit(topic, 0)
        # Nothing was refused on the way.
        assert transaction._sender.bytes_max == 2500
    assert len(headrace_kafka.read(topic, 100)) == 100


def test_two_topics_of_one_batch_are_both_written(headrace_kafka: Kafka) -> None:
    first, second = headrace_kafka.topic("first"), headrace_kafka.topic("second")
    for topic in (first, second):
        written = write_once(options(headrace_kafka, topic), "q", 0, 7, iter([batch(topic)]))
        assert written.records == 1
        assert values(headrace_kafka.read(topic, 1)) == [topic]


def test_a_row_without_a_topic_is_refused(headrace_kafka: Kafka) -> None:
    with pytest.raises(SinkError, match="has no topic"):
        write_once(options(headrace_kafka, None), "q", 0, 0, iter([batch("a", topic=[None])]))


def test_keys_go_where_other_clients_put_them(headrace_kafka: Kafka) -> None:
    topic, other = headrace_kafka.topic("keys", 5), headrace_kafka.topic("theirs", 5)
    from headrace.client import Producer

    keys = [f"user-{number}" for number in range(40)]
    write_once(options(headrace_kafka, topic), topic, 0, 0, iter([batch(*keys, key=keys)]))
    with Producer(headrace_kafka.quiet) as producer:
        for key in keys:
            producer.send(other, key.encode(), key=key.encode())
    ours, theirs = (
        {it.key(): it.partition() for it in headrace_kafka.read(name, 40)}
        for name in (topic, other)
    )
    assert ours == theirs

"""The raw reader: whole batches of a range, from whoever leads the partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka

from headrace.client.wire.batch_reader import BatchReader
from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.errors import OffsetOutOfRange
from headrace.client.wire.leaders import Isolation
from headrace.client.wire.security import Security
from headrace.protocol.api.fetch import FetchRequest, PartitionData
from headrace.protocol.batch import iter_records
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.testing import BrokerThread


@contextmanager
def reader(
    bootstrap: str,
    topic: str,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    fetch_bytes_max: int = 1 << 20,
    timeout_s: float = TIMEOUT_SECONDS,
) -> Iterator[BatchReader]:
    host, _, port = bootstrap.rpartition(":")
    with (
        ClusterClient([(host, int(port))], Security()) as cluster,
        BatchReader(
            cluster,
            topic,
            0,
            isolation=isolation,
            fetch_bytes_max=fetch_bytes_max,
            timeout_s=timeout_s,
        ) as opened,
    ):
        yield opened


def offsets(raw: BatchReader, start: int, end: int) -> list[int]:
    return [
        record.offset
        for fetched in raw.fetch(start, end)
        for position, _ in fetched.committed()
        for record in iter_records(fetched.buffer, position)
        if start <= record.offset < end
    ]


def write_transactions(kafka: Kafka, topic: str, endings: str) -> None:
    """Ten records for each letter: c is a transaction that commits, a one that aborts."""
    producer = Producer({**kafka.quiet, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_SECONDS)
    for ending in endings:
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{ending}{number}")
        producer.flush(TIMEOUT_SECONDS)
        if ending == "c":
            producer.commit_transaction(TIMEOUT_SECONDS)
        else:
            producer.abort_transaction(TIMEOUT_SECONDS)


def test_a_range_is_read_in_many_answers(kafka: Kafka) -> None:
    topic = kafka.topic("raw")
    for _ in range(5):
        kafka.fill(topic, 100)
    with reader(kafka.bootstrap, topic, fetch_bytes_max=500) as raw:
        assert offsets(raw, 0, 500) == list(range(500))
        assert offsets(raw, 137, 331) == list(range(137, 331))
        assert offsets(raw, 400, 400) == []


def test_markers_and_aborted_transactions_are_passed_over(kafka: Kafka) -> None:
    topic = kafka.topic("raw")
    write_transactions(kafka, topic, "cac")
    committed = [*range(10), *range(22, 32)]
    with reader(kafka.bootstrap, topic) as raw:
        assert offsets(raw, 0, 33) == committed
        # In the middle of an aborted transaction too.
        assert offsets(raw, 15, 33) == committed[10:]
        # The last offset is a marker's: nothing is waited for.
        assert offsets(raw, 32, 33) == []
    with reader(kafka.bootstrap, topic, isolation=Isolation.UNCOMMITTED) as raw:
        assert offsets(raw, 0, 33) == [*range(10), *range(11, 21), *range(22, 32)]


def test_offsets_that_were_deleted_are_out_of_range(kafka: Kafka) -> None:
    topic = kafka.topic("raw")
    kafka.fill(topic, 10)
    admin = AdminClient(kafka.quiet)
    for deleted in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        deleted.result(TIMEOUT_SECONDS)
    with reader(kafka.bootstrap, topic) as raw:
        with pytest.raises(OffsetOutOfRange) as caught:
            offsets(raw, 0, 10)
        assert caught.value.log_start_offset in (6, -1)
        assert offsets(raw, 6, 10) == [6, 7, 8, 9]
        with pytest.raises(OffsetOutOfRange):
            offsets(raw, 11, 12)


def test_what_does_not_come_is_not_waited_for_without_end(kafka: Kafka) -> None:
    topic = kafka.topic("raw")
    kafka.fill(topic, 3)
    with (
        reader(kafka.bootstrap, topic, timeout_s=1.0) as raw,
        pytest.raises(TimeoutError, match="has no offset 3"),
    ):
        offsets(raw, 0, 4)


def test_a_topic_that_is_not_there_is_a_refusal(headrace_kafka: Kafka) -> None:
    with (
        reader(headrace_kafka.bootstrap, "nowhere", timeout_s=0.2) as raw,
        pytest.raises(KafkaError) as caught,
    ):
        offsets(raw, 0, 1)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_that_comes_back_is_asked_again(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("raw")
    for _ in range(4):
        kafka.fill(topic, 100)
    with reader(broker.bootstrap, topic, fetch_bytes_max=500) as raw:
        answers = raw.fetch(0, 400)
        found = [header.last_offset for _, header in next(answers).batches]
        broker.restart()
        found += [header.last_offset for fetched in answers for _, header in fetched.batches]
    assert found == sorted(set(found))
    assert found[-1] == 399


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each of the next answers loses its records on the way, as a slow remote read's."""
    answer = BatchReader._answer
    planned: list[bool] = []

    def lossy(self: BatchReader, request: FetchRequest) -> PartitionData | None:
        data = answer(self, request)
        if data is not None and planned and planned.pop(0):
            data.records = b""
        return data

    monkeypatch.setattr(BatchReader, "_answer", lossy)
    return planned


def test_an_answer_without_records_is_not_the_end(kafka: Kafka, emptied: list[bool]) -> None:
    topic = kafka.topic("raw")
    kafka.fill(topic, 5)
    emptied += [True, True, False]
    with reader(kafka.bootstrap, topic) as raw:
        assert offsets(raw, 0, 5) == [0, 1, 2, 3, 4]
    assert emptied == []


def test_what_never_comes_is_believed_to_be_compacted(
    headrace_kafka: Kafka,
    emptied: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("headrace.client.wire.batch_reader.SILENCE_SECONDS", 0.05)
    topic = headrace_kafka.topic("raw")
    headrace_kafka.fill(topic, 5)
    emptied += [True] * 100_000
    with reader(headrace_kafka.bootstrap, topic) as raw:
        assert offsets(raw, 2, 5) == []
    assert "nothing is left of offsets 2 to 4" in caplog.text

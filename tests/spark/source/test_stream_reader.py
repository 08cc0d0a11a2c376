"""The streaming reader: admission, ends, losses, progress and lag, without Spark around it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.spark.topics import delete_before
from tests.waiting import wait_until

from headrace.spark.errors import DataLoss, OptionError, SourceUnreachable
from headrace.spark.source.lags import Lag, lag
from headrace.spark.source.options import read_options
from headrace.spark.source.stream_reader import StreamReader


class Clock:
    """Stands still until it is set."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def reader(kafka: Kafka, clock: Clock | None = None, **given: str) -> StreamReader:
    begin = {"startingOffsets": "earliest", "columns": "offset"}
    options = read_options({"bootstrap": kafka.bootstrap, **begin, **given})
    return StreamReader(options, options.columns, clock or Clock())


def next_end(found: StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """As the engine asks: through JSON, with the reader's own limit."""
    limit = found.getDefaultReadLimit()
    end: dict[str, Any] = json.loads(json.dumps(found.latestOffset(start, limit)))
    return end


def offsets(found: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        offset
        for task in found.partitions(start, end)
        for batch in found.read(task)
        for offset in batch.column(0).to_pylist()
    ]


def test_a_trigger_takes_as_much_as_it_may(kafka: Kafka) -> None:
    topic = kafka.topic("stream", 2)
    kafka.fill(topic, 90, partition=0)
    kafka.fill(topic, 10, partition=1)
    found = reader(kafka, subscribe=topic, maxOffsetsPerTrigger="50")
    start = found.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    middle = next_end(found, start)
    assert middle == {topic: {"0": 45, "1": 5}}
    assert offsets(found, start, middle) == [*range(45), *range(5)]
    end = next_end(found, middle)
    assert end == {topic: {"0": 90, "1": 10}}
    assert next_end(found, end) == end
    # Trigger.Once takes all, whatever the option says.
    assert found.latestOffset(start, ReadAllAvailable()) == end
    found.stop()


def test_a_new_query_begins_at_the_end(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 5)
    options = read_options({"bootstrap": kafka.bootstrap, "subscribe": topic})
    assert StreamReader(options, options.columns).initialOffset() == {topic: {"0": 5}}


def test_available_now_ends_at_what_was_there(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 5)
    found = reader(kafka, subscribe=topic, maxOffsetsPerTrigger="3")
    start = found.initialOffset()
    found.prepareForTriggerAvailableNow()
    kafka.fill(topic, 5)
    kafka.grow(topic, 2)
    middle = next_end(found, start)
    end = next_end(found, middle)
    assert (middle, end) == ({topic: {"0": 3}}, {topic: {"0": 5}})
    assert next_end(found, end) == end


def test_spark_4_1_has_our_own_cap(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 5)
    found = reader(kafka, subscribe=topic, maxOffsetsPerTrigger="3")
    # The first has no cap: with availableNow it is the only one.
    first = found.latestOffset()
    assert first == {topic: {"0": 5}}
    assert offsets(found, found.initialOffset(), first) == [0, 1, 2, 3, 4]
    kafka.fill(topic, 5)
    assert found.latestOffset() == {topic: {"0": 8}}


def test_spark_4_1_caps_a_query_that_goes_on(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 9)
    found = reader(kafka, subscribe=topic, maxOffsetsPerTrigger="3")
    # So it shows where the query was when it ended.
    assert found.partitions({topic: {"0": 4}}, {topic: {"0": 4}}) == []
    assert found.latestOffset() == {topic: {"0": 7}}


def test_spark_4_1_begins_at_the_end_that_was_when_it_asked(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 5)
    found = reader(kafka, subscribe=topic, startingOffsets="latest")
    assert found.latestOffset() == {topic: {"0": 5}}
    kafka.fill(topic, 5)
    assert found.initialOffset() == {topic: {"0": 5}}


def test_too_little_is_waited_for_until_its_time(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 5)
    clock = Clock()
    found = reader(kafka, clock, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="15m")
    start = found.initialOffset()
    assert next_end(found, start) == start
    clock.now_s += 899
    assert next_end(found, start) == start
    clock.now_s += 1
    five = next_end(found, start)
    assert five == {topic: {"0": 5}}
    kafka.fill(topic, 10)
    assert next_end(found, five) == {topic: {"0": 15}}


def test_new_partitions_are_read_from_their_beginning(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 2)
    found = reader(kafka, subscribe=topic)
    start = next_end(found, found.initialOffset())
    kafka.grow(topic, 2)
    kafka.fill(topic, 3, partition=1)
    end = next_end(found, start)
    assert end == {topic: {"0": 2, "1": 3}}
    assert offsets(found, start, end) == [0, 1, 2]


@pytest.fixture
def quickly_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not there is believed gone soon."""
    for module in ("headrace.spark.source.logs", "headrace.client.wire.batch_reader"):
        monkeypatch.setattr(f"{module}.GONE_SECONDS", 0.3)


def delete(kafka: Kafka, topic: str) -> None:
    admin = AdminClient(kafka.quiet)
    admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)
    wait_until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics)


@pytest.mark.usefixtures("quickly_gone")
def test_a_deleted_topic_is_a_loss(kafka: Kafka) -> None:
    kept, gone = kafka.topic("stream"), kafka.topic("stream")
    kafka.fill(kept, 2)
    kafka.fill(gone, 2)
    names = f"{kept},{gone}"
    strict = reader(kafka, subscribe=names)
    lenient = reader(kafka, subscribe=names, failOnDataLoss="false")
    start = strict.initialOffset()
    delete(kafka, gone)
    end = next_end(strict, start)
    assert end == {kept: {"0": 2}}
    with pytest.raises(DataLoss, match=f"{gone}/0 is gone"):
        strict.partitions(start, end)
    assert offsets(lenient, start, end) == [0, 1]


@pytest.mark.usefixtures("quickly_gone")
def test_a_topic_deleted_after_the_end_was_found_is_a_loss(kafka: Kafka) -> None:
    kept, gone = kafka.topic("stream"), kafka.topic("stream")
    kafka.fill(kept, 2)
    kafka.fill(gone, 2)
    names = f"{kept},{gone}"
    strict = reader(kafka, subscribe=names)
    lenient = reader(kafka, subscribe=names, failOnDataLoss="false")
    start = strict.initialOffset()
    end = next_end(strict, start)
    planned = strict.partitions(start, end)
    delete(kafka, gone)
    # A micro-batch that runs again has the end that is in Spark's log.
    with pytest.raises(DataLoss, match=f"{gone}/0 is gone"):
        strict.partitions(start, end)
    assert offsets(lenient, start, end) == [0, 1]
    # Tasks that were planned before find it out themselves.
    [late] = [task for task in planned if task.value.topic == gone]
    with pytest.raises(DataLoss, match=f"{gone}/0 was deleted"):
        list(strict.read(late))
    assert list(lenient.read(late)) == []


@pytest.mark.usefixtures("quickly_gone")
def test_a_deleted_topic_does_not_hold_up_the_progress_of_others(kafka: Kafka) -> None:
    kept, gone = kafka.topic("stream"), kafka.topic("stream")
    kafka.fill(kept, 2)
    kafka.fill(gone, 2)
    names, group = f"{kept},{gone}", f"spark-{kept}"
    before = reader(kafka, subscribe=names, group=group)
    end = next_end(before, before.initialOffset())
    before.stop()
    delete(kafka, gone)
    assert next_end(reader(kafka, subscribe=names, group=group), end) == {kept: {"0": 2}}
    assert kafka.committed(group, kept) == 2


def test_a_topic_that_is_not_there_is_said_at_once(kafka: Kafka) -> None:
    with pytest.raises(OptionError, match="there is no topic nowhere"):
        reader(kafka, subscribe="nowhere").initialOffset()


def test_a_topic_made_anew_is_a_loss(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 2)
    start = {topic: {"0": 50}}
    end = {topic: {"0": 2}}
    with pytest.raises(DataLoss, match="went back from 50 to 2"):
        reader(kafka, subscribe=topic).partitions(start, end)
    lenient = reader(kafka, subscribe=topic, failOnDataLoss="false")
    assert offsets(lenient, start, end) == [0, 1]


def test_open_transactions_are_waited_for(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    producer = Producer({**kafka.quiet, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.flush(TIMEOUT_SECONDS)
    found = reader(kafka, subscribe=topic)
    start = found.initialOffset()
    assert next_end(found, start) == {topic: {"0": 0}}
    producer.commit_transaction(TIMEOUT_SECONDS)
    ends: list[dict[str, Any]] = []

    def is_over() -> bool:
        ends.append(next_end(found, start))
        return ends[-1] == {topic: {"0": 2}}

    wait_until(is_over)
    assert offsets(found, start, ends[-1]) == [0]


def test_progress_is_committed_to_a_group(kafka: Kafka) -> None:
    topic = kafka.topic("stream", 2)
    kafka.fill(topic, 7)
    found = reader(kafka, subscribe=topic, group=f"spark-{topic}")
    start = found.initialOffset()
    end = next_end(found, start)
    assert kafka.committed(f"spark-{topic}", topic) == 0
    found.commit(end)
    assert kafka.committed(f"spark-{topic}", topic) == 7
    kafka.fill(topic, 1)
    more = next_end(found, end)
    # What is asked to be continued is done, though nobody has said so yet.
    next_end(found, more)
    assert kafka.committed(f"spark-{topic}", topic) == 8


def test_a_group_with_members_is_not_for_a_query(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    group = f"taken-{topic}"
    consumer = Consumer({**kafka.quiet, "group.id": group})
    consumer.subscribe([topic])

    def has_joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_until(has_joined)
    found = reader(kafka, subscribe=topic, group=group)
    with pytest.raises(SourceUnreachable, match="give the query a group without members"):
        found.commit(found.initialOffset())
    consumer.close()


def test_the_lag_is_in_the_progress(kafka: Kafka) -> None:
    topic = kafka.topic("stream", config={"retention.ms": "-1"})
    kafka.fill(topic, 4, timestamp_ms=900_000)
    found = reader(kafka, Clock(1000.0), subscribe=topic, maxOffsetsPerTrigger="1")
    start = found.initialOffset()
    next_end(found, start)
    reported = found.reportLatestOffset()
    progress = {"sources": [{"latestOffset": json.dumps(reported)}, {"latestOffset": None}]}
    assert lag(progress) == Lag(3, 100.0)
    found.latestOffset(start, ReadAllAvailable())
    assert lag({"sources": [{"latestOffset": found.reportLatestOffset()}]}) == Lag(0, 0.0)
    assert lag({"sources": []}) is None


def test_records_deleted_before_they_were_read(kafka: Kafka) -> None:
    topic = kafka.topic("stream")
    kafka.fill(topic, 5)
    delete_before(kafka, topic, 3)
    start, end = {topic: {"0": 0}}, {topic: {"0": 5}}
    with pytest.raises(DataLoss, match="offsets 0 to 2 were deleted"):
        offsets(reader(kafka, subscribe=topic), start, end)
    lenient = reader(kafka, subscribe=topic, failOnDataLoss="false")
    assert offsets(lenient, start, end) == [3, 4]

"""The batch reader: where it begins and ends, and what it reads, without Spark around it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apache_kafka import free_ports
from tests.client.kafkas import Kafka
from tests.spark.topics import delete_before

from headrace.spark.errors import DataLoss, OptionError, SourceUnreachable
from headrace.spark.source.batch_reader import BatchReader
from headrace.spark.source.options import read_options

HOUR_MS = 3_600_000


def reader(kafka: Kafka, **given: str) -> BatchReader:
    options = read_options({"bootstrap": kafka.bootstrap, "columns": "offset", **given})
    return BatchReader(options, options.columns)


def ranges(found: BatchReader) -> list[tuple[int, int, int]]:
    return [(it.value.partition, it.value.start, it.value.end) for it in found.partitions()]


def offsets(found: BatchReader) -> list[int]:
    return [
        offset
        for task in found.partitions()
        for batch in found.read(task)
        for offset in batch.column(0).to_pylist()
    ]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """Two partitions with ten records each, an hour between records."""
    topic = kafka.topic("batch", 2, {"retention.ms": "-1"})
    for partition in (0, 1):
        for number in range(10):
            kafka.fill(topic, 1, partition=partition, timestamp_ms=(1 + number) * HOUR_MS)
    return topic


def test_all_that_is_there(kafka: Kafka, topic: str) -> None:
    found = reader(kafka, subscribe=topic)
    assert ranges(found) == [(0, 0, 10), (1, 0, 10)]
    assert offsets(found) == [*range(10), *range(10)]
    assert ranges(reader(kafka, subscribePattern=f"{topic[:-1]}.")) == [(0, 0, 10), (1, 0, 10)]
    assert ranges(reader(kafka, assign=f'{{"{topic}": [1]}}')) == [(1, 0, 10)]
    assert ranges(reader(kafka, subscribePattern="no-topic-is-called-this")) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 3, "1": -2}}'}, [(0, 3, 10), (1, 0, 10)]),
        ({"endingOffsets": '{"TOPIC": {"0": 3, "1": -1}}'}, [(0, 0, 3), (1, 0, 10)]),
        ({"startingTimestamp": str(9 * HOUR_MS)}, [(0, 8, 10), (1, 8, 10)]),
        (
            {"startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {8 * HOUR_MS - 5}, "1": 0}}}}'},
            [(0, 7, 10), (1, 0, 10)],
        ),
        ({"endingTimestamp": str(3 * HOUR_MS)}, [(0, 0, 2), (1, 0, 2)]),
        ({"endingTimestamp": str(30 * HOUR_MS)}, [(0, 0, 10), (1, 0, 10)]),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"},
            [(0, 0, 10), (1, 0, 10)],
        ),
        ({"minPartitions": "4"}, [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]),
        ({"maxRecordsPerPartition": "6"}, [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]),
    ],
)
def test_where_it_begins_and_ends(
    kafka: Kafka, topic: str, given: dict[str, str], expected: list[tuple[int, int, int]]
) -> None:
    named = {name: value.replace("TOPIC", topic) for name, value in given.items()}
    assert ranges(reader(kafka, subscribe=topic, **named)) == expected


def test_a_time_after_the_last_record(kafka: Kafka, topic: str) -> None:
    late = {"subscribe": topic, "startingTimestamp": str(90 * HOUR_MS)}
    with pytest.raises(OptionError, match="no record at that time or later"):
        reader(kafka, **late).partitions()
    assert ranges(reader(kafka, **late, startingOffsetsByTimestampStrategy="latest")) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "nowhere"}, "there is no topic nowhere"),
        ({"assign": '{"TOPIC": [7]}'}, "there is no partition TOPIC/7"),
        ({"startingOffsets": '{"TOPIC": {"0": 1}}'}, r"lacks \[\('TOPIC', 1\)\]"),
        ({"endingOffsets": '{"TOPIC": {"0": 1, "1": 1, "5": 1}}'}, "which the query does not read"),
    ],
)
def test_what_is_not_there_is_said(
    kafka: Kafka, topic: str, given: dict[str, str], message: str
) -> None:
    named = {name: value.replace("TOPIC", topic) for name, value in given.items()}
    if "assign" not in named:
        named = {"subscribe": topic, **named}
    with pytest.raises(OptionError, match=message.replace("TOPIC", topic)):
        reader(kafka, **named).partitions()


def test_nobody_answers() -> None:
    [port] = free_ports(1)
    options = {"bootstrap": f"127.0.0.1:{port}", "subscribe": "t"}
    found = read_options({**options, "kafkaConsumer.pollTimeoutMs": "300"})
    with pytest.raises(SourceUnreachable, match="is the address right"):
        BatchReader(found, found.columns).partitions()


def test_records_deleted_after_planning(kafka: Kafka, topic: str) -> None:
    strict, lenient = (
        reader(kafka, assign=f'{{"{topic}": [0]}}', failOnDataLoss=fails)
        for fails in ("true", "false")
    )
    [task] = strict.partitions()
    delete_before(kafka, topic, 4)
    with pytest.raises(DataLoss, match=f"{topic}/0: offsets 0 to 3 were deleted"):
        list(strict.read(task))
    found: list[Any] = [batch.column(0).to_pylist() for batch in lenient.read(task)]
    assert found == [[4, 5, 6, 7, 8, 9]]


def test_an_end_that_is_not_there(kafka: Kafka, topic: str) -> None:
    given = {"assign": f'{{"{topic}": [0]}}', "startingOffsets": f'{{"{topic}": {{"0": 50}}}}'}
    with pytest.raises(DataLoss, match=r"startingOffsets: .* ends at 10, before 50"):
        reader(kafka, **given).partitions()
    assert offsets(reader(kafka, failOnDataLoss="false", **given)) == []
    given = {"assign": f'{{"{topic}": [0]}}', "endingOffsets": f'{{"{topic}": {{"0": 50}}}}'}
    with pytest.raises(DataLoss, match="ends at 10, before 50"):
        reader(kafka, **given).partitions()
    assert ranges(reader(kafka, **given, failOnDataLoss="false")) == [(0, 0, 10)]

"""`format("headrace")` in a real Spark: the same rows as a plain consumer, batch and streaming."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from tests.apache_kafka import ApacheKafka
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.spark.topics import Row, consume, delete_before, from_spark, generate
from tests.waiting import wait_until

from headrace.spark import lag, register
from headrace.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

# Spark 4.1 neither says where a micro-batch begins nor asks for what is behind it.
HAS_HOOKS = [int(part) for part in pyspark.__version__.split(".")[:2]] >= [4, 2]
TOO_SLOW = "Python worker failed to connect back"
GENERATED = 4
GENERATED_LONG = 60


def by_topic(rows: list[Any]) -> dict[str, list[Row]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(row)
    return {topic: from_spark(rows) for topic, rows in found.items()}


def read_all(frame: DataFrame) -> list[Any]:
    return frame.selectExpr("*", "unix_millis(timestamp) AS time_ms").collect()


def stream_all(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, columns: list[str]
) -> tuple[list[Any], list[Any]]:
    """All that is there, in micro-batches; and the query's progress."""
    frame = spark.readStream.format("headrace").options(**options).load().selectExpr(*columns)
    found: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect())).option(
        "checkpointLocation", str(checkpoint)
    )
    return found, run_to_end(writer)


def run_to_end(writer: Any) -> list[Any]:
    """Run a query until it has read all, and return its progress."""
    while True:
        try:
            if HAS_HOOKS:
                query = writer.trigger(availableNow=True).start()
                assert query.awaitTermination(240)
            else:
                query = writer.start()
                query.processAllAvailable()
                query.stop()
            return list(query.recentProgress)
        except StreamingQueryException as problem:
            # Spark gives a new Python process ten seconds, which a busy machine may not have.
            if TOO_SLOW not in str(problem):
                raise


def check_equal(kafka: Kafka, spark: SparkSession, folder: Path, seeds: range) -> None:
    topics = [generate(kafka, seed) for seed in seeds]
    expected = {topic: rows for topic in topics if (rows := consume(kafka, topic))}
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": ",".join(topics),
        "includeHeaders": "true",
        # Small enough for ranges to begin and end inside batches and transactions.
        "maxRecordsPerPartition": "150",
        "kafka.max.partition.fetch.bytes": "20000",
    }
    found = read_all(spark.read.format("headrace").options(**options).load())
    assert by_topic(found) == expected
    streaming = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1500"}
    columns = ["*", "unix_millis(timestamp) AS time_ms"]
    streamed, progress = stream_all(spark, streaming, folder, columns)
    assert by_topic(streamed) == expected
    if HAS_HOOKS:
        assert len([it for it in progress if it["numInputRows"]]) > 1


def test_generated_topics_are_read_as_by_a_plain_consumer(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    check_equal(kafka, spark, tmp_path, range(GENERATED))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_generated_topics_are_read_as_by_a_plain_consumer(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    for first in range(100, 100 + GENERATED_LONG, 10):
        check_equal(kafka, spark, tmp_path / str(first), range(first, first + 10))


@pytest.mark.parametrize("kind", ["headrace", "apache"])
def test_a_compacted_topic_is_read_as_by_a_plain_consumer(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    settings: dict[str, Any] = {
        "log.initial.task.delay.ms": 0,
        "log.cleaner.backoff.ms": 50,
        "log.flush.offset.checkpoint.interval.ms": 50,
    }
    # The smallest segments that Apache Kafka makes, so values of some size.
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
    }
    is_ours = kind == "headrace"
    made = BrokerThread(settings) if is_ours else ApacheKafka(settings=settings)
    with made as broker:
        kafka = Kafka(kind, broker.bootstrap)
        topic = kafka.topic("compacted", config=config)
        producer = Producer({**kafka.quiet, "batch.num.messages": 50})
        for number in range(2000):
            producer.produce(topic, b"v%d" % number + bytes(2000), b"k%d" % (number % 37))
        assert producer.flush(TIMEOUT_SECONDS) == 0
        pause = threading.Event()
        wait_until(lambda: pause.wait(0.2) or 0 < len(consume(kafka, topic)) < 1000)
        options = {
            "bootstrap": kafka.bootstrap,
            "subscribe": topic,
            "minPartitions": "5",
            "includeHeaders": "true",
        }
        before = consume(kafka, topic)
        read = read_all(spark.read.format("headrace").options(**options).load())
        streaming = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "700"}
        columns = ["*", "unix_millis(timestamp) AS time_ms"]
        streamed, _ = stream_all(spark, streaming, tmp_path, columns)
        after = consume(kafka, topic)
    for rows in (read, streamed):
        found = by_topic(rows)[topic]
        # The cleaner may run on meanwhile: what it keeps must be there, and nothing that never was.
        assert set(map(str, after)) <= set(map(str, found)) <= set(map(str, before))
        # Nor is one read twice where tasks meet.
        assert len(set(map(str, found))) == len(found)


def test_only_named_columns_are_built(headrace_kafka: Kafka, spark: SparkSession) -> None:
    topic = headrace_kafka.topic("columns")
    headrace_kafka.fill(topic, 10)
    register(spark)
    reader = spark.read.format("headrace").option("bootstrap", headrace_kafka.bootstrap)
    named = reader.option("subscribe", topic).option("columns", "offset,value").load()
    assert named.columns == ["offset", "value"]
    assert [tuple(row) for row in named.filter("offset = 3").collect()] == [(3, b"v3")]
    typed = (
        spark.read.format("headrace")
        .schema("value binary")
        .options(bootstrap=headrace_kafka.bootstrap, subscribe=topic)
        .load()
    )
    assert typed.count() == 10


def test_bad_options_fail_at_once(headrace_kafka: Kafka, spark: SparkSession) -> None:
    reader = spark.read.format("headrace").option("bootstrap", headrace_kafka.bootstrap)
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        reader.option("subscribe", "t").option("startingOffset", "earliest").load()


def test_a_query_goes_on_where_it_ended(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    topic = kafka.topic("restarted")
    kafka.fill(topic, 30)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
        "group": f"group-{topic}",
        "columns": "partition,offset",
    }
    first, progress = stream_all(spark, options, tmp_path, ["*"])
    assert sorted(row["offset"] for row in first) == list(range(30))
    wait_until(lambda: kafka.committed(f"group-{topic}", topic) == 30)
    if HAS_HOOKS:
        behind = [found.records for it in progress if (found := lag(it)) is not None]
        assert behind[0] == 10
        assert behind[-1] == 0
    kafka.grow(topic, 2)
    kafka.fill(topic, 5, partition=0)
    kafka.fill(topic, 5, partition=1)
    second, _ = stream_all(spark, options, tmp_path, ["*"])
    places = sorted((row["partition"], row["offset"]) for row in second)
    assert places == [(0, offset) for offset in range(30, 35)] + [(1, n) for n in range(5)]
    assert kafka.committed(f"group-{topic}", topic, 1) == 5


def test_deleted_records_end_a_query(
    headrace_kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = headrace_kafka.topic("deleted")
    headrace_kafka.fill(topic, 10)
    delete_before(headrace_kafka, topic, 6)
    options = {
        "bootstrap": headrace_kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": f'{{"{topic}": {{"0": 0}}}}',
    }
    frame = spark.read.format("headrace").options(**options).load()
    with pytest.raises(Exception, match=r"DataLoss.*offsets 0 to 5 were deleted"):
        frame.collect()
    lenient = spark.read.format("headrace").options(**options, failOnDataLoss="false").load()
    assert sorted(row["offset"] for row in lenient.collect()) == [6, 7, 8, 9]


def test_streams_of_a_session_write_into_a_map_for_many_threads(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    topic = headrace_kafka.topic("shared")
    headrace_kafka.fill(topic, 10)
    register(spark)
    options = {
        "startingOffsets": "earliest",
        "bootstrap": headrace_kafka.bootstrap,
        "subscribe": topic,
    }
    stream_all(spark, options, tmp_path, ["value"])
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    shared = manager.lookupDataSource("headrace").dataSourceCls().envVars()
    # A stream has left its mark, so another one writes here too, at the same time for all we know.
    assert "SPARK_LOCAL_DIRS" in str(shared.keySet())
    assert shared.getClass().getSimpleName() == "ConcurrentHashMap"
    assert isinstance(spark.sparkContext.environment, dict)

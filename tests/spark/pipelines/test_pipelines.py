"""Pipelines from topic to topic: typed, with dead letters, restarted, stopped, replayed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.client.kafkas import Kafka
from tests.spark.reruns import forget_last_batch
from tests.spark.runs import make_runner, objects, run_pipeline, send
from tests.waiting import wait_until

from headrace.spark import (
    Json,
    Pipeline,
    Source,
    Topic,
    latest_by_key,
    live_topic,
    pipeline,
    register,
)
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines import pacing
from headrace.spark.pipelines.aliases import live_version, make_live
from headrace.spark.pipelines.comparison import compare
from headrace.spark.pipelines.outputs import drop_output, output_exists
from headrace.spark.pipelines.queries import group_of
from headrace.spark.source.stream_reader import HAS_ADMISSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE = Json("user STRING NOT NULL, amount DOUBLE")


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def doubled(events: DataFrame) -> DataFrame:
    return events.selectExpr("user", "amount * 2 AS amount")


def define(source: Any, output: str, function: Any = doubled, **more: Any) -> Pipeline:
    given = {"value": VALUE, "tasks": 2, "sink": Topic(output, key="user"), **more}
    return pipeline(source=source, **given)(function)


def test_values_are_typed_and_bad_ones_become_dead_letters_once(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, sink = kafka.topic("typed", 2), kafka.topic("typed-out", 2)
    send(kafka, source, [{"user": f"u{number}", "amount": number} for number in range(20)])
    send(kafka, source, ["not JSON", {"amount": 1}, {"user": "u", "amount": "much"}, " ", "null"])
    made = define(source, sink)
    state = run_pipeline(spark, kafka, made, tmp_path)
    assert (state["state"], state["error"], state["restarts"]) == ("finished", None, 0)
    for checkpoint in ("checkpoint", "checkpoint-letters"):
        forget_last_batch(tmp_path / made.name / "v1" / checkpoint)
    send(kafka, source, [{"user": "last", "amount": 0}, "also bad"])
    run_pipeline(spark, kafka, made, tmp_path)
    found = {row["user"]: row["amount"] for row in objects(kafka, sink, 21)}
    assert found == {**{f"u{number}": 2.0 * number for number in range(20)}, "last": 0.0}
    letters = {it.value(): dict(it.headers()) for it in kafka.read(f"{source}.dlq", 6)}
    assert set(letters) == {
        b"not JSON",
        b"also bad",
        b" ",
        b"null",
        b'{"amount": 1}',
        b'{"user": "u", "amount": "much"}',
    }
    headers = letters[b'{"amount": 1}']
    assert headers["headrace-error"] == b"UndecodableValue: user is missing"
    assert headers["headrace-handler"] == b"doubled"
    assert headers["headrace-source"].decode().startswith(f"{source}/")
    assert headers["headrace-id"] == headers["headrace-source"]
    # What is in the topics now is all there is.
    for topic in (sink, f"{source}.dlq"):
        kafka.fill(topic, 1, word="end")
    assert len(kafka.read(sink, 22)) == 22
    assert len(kafka.read(f"{source}.dlq", 7)) == 7
    committed = [kafka.committed(group_of(made), source, number) or 0 for number in range(2)]
    assert sum(committed) == 27


def test_a_backlog_is_read_in_batches_that_a_bar_can_follow(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "RECORDS_PER_BATCH", 4)
    monkeypatch.setattr(pacing, "RECORDS_PER_SECOND", 4)
    kafka = headrace_kafka
    source, sink = kafka.topic("backlog"), kafka.topic("backlog-out")
    kafka.fill(source, 10)

    def backlog(records: DataFrame) -> DataFrame:
        return records.select("value")

    made = define(source, sink, backlog, value=None, sink=sink)
    state = run_pipeline(spark, kafka, made, tmp_path)
    assert (state["done"], state["total"]) == (10, 10)
    # Spark 4.1 has its first batch as large as it may be, and reports no lag.
    if HAS_ADMISSION:
        assert (state["batch"], state["lag"]["records"]) == (2, 0)
    assert len(kafka.read(sink, 10)) == 10


def test_rows_that_change_between_two_runs_of_a_batch_are_neither_lost_nor_doubled(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    orders, people, sink = (kafka.topic(name) for name in ("orders", "people", "named"))
    send(kafka, orders, [{"user": "1", "amount": number} for number in range(3)])
    send(kafka, people, [{"id": "1", "name": "Ada"}], key="id")

    def named(orders: DataFrame, people: DataFrame) -> DataFrame:
        return orders.join(people.select("id", "name"), orders.user == people.id).select(
            "amount", "name"
        )

    made = pipeline(
        source={
            "orders": Source(orders, VALUE),
            "people": Source(people, Json("id STRING, name STRING"), latest=True),
        },
        sink=Topic(sink),
        tasks=8,
    )(named)
    run_pipeline(spark, kafka, made, tmp_path)
    forget_last_batch(tmp_path / made.name / "v1" / "checkpoint")
    # Parted by what they hold, the rows would go to other tasks now, which have written nothing;
    # and a value that cannot be read does not take away the one before it.
    send(kafka, people, [{"id": "1", "name": "Eva"}], key="id")
    producer = Producer(kafka.quiet)
    producer.produce(people, "not JSON", "1")
    assert producer.flush(60) == 0
    send(kafka, orders, [{"user": "1", "amount": 3}])
    run_pipeline(spark, kafka, made, tmp_path)
    kafka.fill(sink, 1, word="end")
    found = [it.value() for it in kafka.read(sink, 5)]
    texts = [b'{"amount":%d.0,"name":"%s"}' % (n, b"Eva" if n == 3 else b"Ada") for n in range(4)]
    assert sorted(found) == sorted([*texts, b"end0"])
    assert [it.value() for it in kafka.read(f"{people}.dlq", 1)] == [b"not JSON"]


def test_a_key_that_moved_to_another_partition_is_where_it_was_written_last(
    spark: SparkSession,
) -> None:
    schema = "key STRING, value STRING, partition INT, offset BIGINT, timestamp BIGINT"
    rows = [
        ("moved", "old", 2, 999, 10), ("moved", "new", 1, 10, 20),
        ("gone", "old", 2, 998, 10), ("gone", None, 1, 11, 20),
        # Within a partition the order is that of the log, whatever the clocks say.
        ("still", "old", 0, 1, 50), ("still", "new", 0, 2, 40),
    ]  # fmt: skip
    found = latest_by_key(spark.createDataFrame(rows, schema)).collect()
    assert {row.key: row.value for row in found} == {"moved": "new", "still": "new"}


def test_a_pipeline_that_fails_starts_again_and_stops_when_asked(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    kafka = headrace_kafka
    source, sink = kafka.topic("failing"), kafka.topic("failing-out")
    flag = tmp_path / "fail"
    flag.touch()

    def failing(records: DataFrame) -> DataFrame:
        def check(value: str) -> str:
            if flag.exists():
                raise RuntimeError("the flag is up")
            return value

        return records.select(f.udf(check, "string")(f.col("value").cast("string")).alias("value"))

    made = define(source, sink, failing, value=None, sink=sink)
    kafka.fill(source, 3)
    runner, home = make_runner(kafka, made, tmp_path)
    with home.locked():
        running = threading.Thread(target=runner.run, args=(spark,))
        running.start()
        wait_until(lambda: home.state().get("restarts", 0) >= 1)
        assert "the flag is up" in home.state()["error"]
        flag.unlink()
        assert len(kafka.read(sink, 3)) == 3
        wait_until(lambda: home.state()["state"] == "running")
        with pytest.raises(PipelineError, match="is running already"), home.locked():
            raise AssertionError
        home.ask_to_stop()
        running.join(60)
        assert not running.is_alive()
    assert home.state()["state"] == "stopped"


def test_a_new_version_is_replayed_compared_and_switched_to(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, sink = kafka.topic("replay", 2), f"{kafka.topic('out')}-live"
    send(kafka, source, [{"user": f"u{number}", "amount": number} for number in range(10)])

    def fixed(events: DataFrame) -> DataFrame:
        return events.where("amount < 9").selectExpr(
            "user", "amount * IF(amount = 3, 3, 2) AS amount"
        )

    old = define(source, sink, name="replayed")
    new = define(source, sink, fixed, name="replayed", version=2)
    where = {"bootstrap.servers": kafka.bootstrap}
    assert live_topic(where, sink) == sink
    run_pipeline(spark, kafka, old, tmp_path)
    make_live(where, old.sink, 1)
    # With a rate, a bounded run ends by what was there when it began.
    state = run_pipeline(spark, kafka, new, tmp_path, records_per_s=6)
    assert state["state"] == "finished"
    assert (live_topic(where, sink), live_version(where, new.sink)) == (sink, 1)
    found = compare(spark, new.sink, 1, 2, {"kafka.bootstrap.servers": kafka.bootstrap})
    assert (found.old_rows, found.new_rows) == (10, 9)
    assert (found.same, found.different, found.only_old, found.only_new) == (8, 1, 1, 0)
    assert {tuple(row["key"]): row["kind"] for row in found.examples} == {
        ("u3",): "different",
        ("u9",): "only_old",
    }
    make_live(where, new.sink, 2)
    assert (live_topic(where, sink), live_version(where, new.sink)) == (f"{sink}.v2", 2)
    drop_output(new.sink, 1, where)
    wait_until(lambda: not output_exists(new.sink, 1, where))
    assert output_exists(new.sink, 2, where)


def test_a_bounded_run_reads_all_in_small_batches(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    kafka = headrace_kafka
    source, sink = kafka.topic("small"), kafka.topic("small-out")
    made = define(source, sink, options={"maxOffsetsPerTrigger": "4"})
    for first in (0, 10):
        rows = [{"user": f"u{number}", "amount": number} for number in range(first, first + 10)]
        send(kafka, source, rows)
        assert run_pipeline(spark, kafka, made, tmp_path)["state"] == "finished"
        assert len(kafka.read(sink, first + 10)) == first + 10


def test_a_run_with_a_rate_ends_where_only_some_sources_are_typed(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    kafka = headrace_kafka
    typed, plain, sink = kafka.topic("typed"), kafka.topic("plain"), kafka.topic("both")
    for topic in (typed, plain):
        send(kafka, topic, [{"user": topic, "amount": number} for number in range(3)])

    def both(typed: DataFrame, plain: DataFrame) -> DataFrame:
        rows = plain.selectExpr("CAST(value AS STRING) AS value", "'plain' AS user")
        return typed.selectExpr("to_json(struct(user, amount)) AS value", "user").union(rows)

    source = {"typed": Source(typed, VALUE), "plain": Source(plain)}
    made = define(source, sink, both, value=None)
    assert run_pipeline(spark, kafka, made, tmp_path, records_per_s=100)["state"] == "finished"
    assert len(kafka.read(sink, 6)) == 6


def test_what_cannot_run_says_why(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    source, sink = headrace_kafka.topic("bad"), headrace_kafka.topic("bad-out")

    def run(made: Pipeline, **start: Any) -> None:
        run_pipeline(spark, headrace_kafka, made, tmp_path, **start)

    with pytest.raises(PipelineError, match=r"no topic 'missing'.*headrace topic create"):
        run(define("missing", sink))
    with pytest.raises(PipelineError, match="returned NoneType"):
        run(define(source, sink, lambda events: None, name="nothing"))
    with pytest.raises(PipelineError, match="key's column 'user'"):
        run(define(source, sink, lambda events: events.select("amount"), name="keyless"))
    with pytest.raises(PipelineError, match="watermark's column 'at'"):
        run(define(source, sink, watermark=("at", "1 minute")))
    with pytest.raises(PipelineError, match="is not a schema"):
        run(define(source, sink, value=Json("user STRINK")))
    with pytest.raises(PipelineError, match="no connector"):
        run(define(source, sink), connector="rabbit")
    with pytest.raises(PipelineError, match=r"not installed.*spark.jars.packages"):
        run(define(source, sink), connector="kafka")

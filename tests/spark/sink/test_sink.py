"""The sink under Spark: a batch that is run again, whole or in part, writes nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.kafkas import Kafka, values
from tests.spark.reruns import forget_last_batch, run_to_end
from tests.waiting import wait_until

from headrace.spark import exactly_once, register
from headrace.spark.errors import PlanChanged, SinkError
from headrace.spark.sink.markers import marker_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COUNT = 300
TASKS = 3


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def numbers(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the numbers in the files of a folder."""
    return spark.readStream.schema("value STRING").text(str(folder))


def write_numbers(folder: Path, name: str, first: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{number}\n" for number in range(first, first + COUNT))
    (folder / name).write_text(lines)


def to(kafka: Kafka, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}


def pinned(rows: DataFrame, kafka: Kafka, topic: str, place: Path, **more: Any) -> DataStreamWriter:
    given: dict[str, Any] = {"tasks": TASKS, "key": "value", **more}
    return exactly_once(
        rows, checkpoint=str(place / "checkpoint"), options=to(kafka, topic), **given
    )


def test_a_batch_of_a_stream_that_runs_again_is_not_doubled(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic("stream", 2)
    write_numbers(tmp_path / "in", "a.txt", 0)
    rows = numbers(spark, tmp_path / "in")
    run_to_end(pinned(rows, kafka, topic, tmp_path))
    forget_last_batch(tmp_path / "checkpoint")
    write_numbers(tmp_path / "in", "b.txt", COUNT)
    query = run_to_end(pinned(rows, kafka, topic, tmp_path))
    assert query.lastProgress is not None
    # What follows all that the query may have written shows that there is no more of it.
    for partition in range(2):
        kafka.fill(topic, 1, partition=partition, word="end")
    found = values(kafka.read(topic, 2 * COUNT + 2))
    assert sorted(found) == sorted([*map(str, range(2 * COUNT)), "end0", "end0"])


def test_a_batch_that_failed_half_way_is_completed(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as f

    topic = kafka.topic("half", 2)
    write_numbers(tmp_path / "in", "a.txt", 0)
    flag = tmp_path / "fail"
    flag.touch()

    def fail_after_others(value: str) -> str:
        from pyspark import TaskContext

        if value != "7" or not flag.exists():
            return value
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        assert query is not None
        others = [
            marker_name(query, task, topic)
            for task in range(TASKS)
            if task != context.partitionId()
        ]
        wait_until(lambda: all(kafka.committed(name, topic) is not None for name in others))
        raise RuntimeError("this task fails after the others have written")

    failing = f.udf(fail_after_others, "string")
    rows = numbers(spark, tmp_path / "in").repartition(TASKS, "value")
    writer = rows.select(failing("value").alias("value")).writeStream.format("headrace")
    writer = writer.options(**to(kafka, topic))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="this task fails"):
        run_to_end(writer)
    flag.unlink()
    run_to_end(writer)
    for partition in range(2):
        kafka.fill(topic, 1, partition=partition, word="end")
    found = values(kafka.read(topic, COUNT + 2))
    assert sorted(found) == sorted([*map(str, range(COUNT)), "end0", "end0"])


def test_another_plan_is_refused_unless_no_batch_is_open_and_it_is_wanted(
    spark: SparkSession, headrace_kafka: Kafka, tmp_path: Path
) -> None:
    topic = headrace_kafka.topic("pinned")
    write_numbers(tmp_path / "in", "a.txt", 0)
    rows = numbers(spark, tmp_path / "in")
    run_to_end(pinned(rows, headrace_kafka, topic, tmp_path))
    changed = rows.selectExpr("concat(value, '!') AS value")
    with pytest.raises(PlanChanged, match="tasks were 3 and are 4"):
        pinned(rows, headrace_kafka, topic, tmp_path, tasks=4)
    with pytest.raises(PlanChanged, match=r"plan has changed.*--repin"):
        pinned(changed, headrace_kafka, topic, tmp_path)
    again = spark.readStream.schema("value STRING").text(str(tmp_path / "in"))
    pinned(again, headrace_kafka, topic, tmp_path)
    pinned(changed, headrace_kafka, topic, tmp_path, repin=True)
    forget_last_batch(tmp_path / "checkpoint")
    with pytest.raises(PlanChanged, match="batch 0 is half written"):
        pinned(rows, headrace_kafka, topic, tmp_path, repin=True)
    with pytest.raises(SinkError, match="no column 'user'"):
        pinned(rows, headrace_kafka, topic, tmp_path, key="user")


def test_a_frame_is_written_and_a_job_of_the_same_id_once(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.topic("batch", 2)
    rows = spark.range(COUNT).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value",
        "array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )  # fmt: skip
    for _ in range(2):
        rows.write.format("headrace").options(**to(kafka, topic), id=topic).mode("append").save()
    rows.limit(1).write.format("headrace").options(**to(kafka, topic)).mode("append").save()
    found = kafka.read(topic, COUNT + 1)
    assert sorted(values(found)) == sorted(["0", *map(str, range(COUNT))])
    assert all(len(it.headers()) == 1 for it in found)


@pytest.mark.parametrize(
    ("columns", "options", "mode", "words"),
    [
        ("id", {"topic": "t"}, "append", "no column 'value'"),
        ("id AS value", {"topic": "t"}, "append", "cast it to string or binary"),
        ("'x' AS value", {}, "append", "no topic is given"),
        ("'x' AS value", {"topic": "t", "topics": "u"}, "append", "did you mean topic"),
        ("'x' AS value", {"topic": "t"}, "overwrite", "cannot be overwritten"),
    ],
)
def test_what_cannot_be_written_fails_at_once_with_a_hint(
    spark: SparkSession, columns: str, options: dict[str, str], mode: str, words: str
) -> None:
    rows = spark.range(1).selectExpr(columns)
    writer = rows.write.format("headrace").options(bootstrap="127.0.0.1:1", **options).mode(mode)
    with pytest.raises(Exception, match=words):
        writer.save()

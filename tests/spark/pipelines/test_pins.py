"""Pins under Spark: what of a plan they see, and which rows have to be kept for another run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f
from tests.spark.reruns import forget_last_batch, run_to_end

from headrace.spark.errors import PlanChanged
from headrace.spark.pipelines.hadoop_files import HadoopFiles
from headrace.spark.pipelines.kept_rows import keep, may_change
from headrace.spark.pipelines.pins import Pin, hold, plan_fingerprint, plan_text
from headrace.spark.pipelines.plan_keys import are_settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = 40


def fingerprint(rows: DataFrame) -> str:
    return plan_fingerprint(plan_text(rows._jdf.queryExecution().analyzed(), rows))


def test_a_change_in_the_last_of_many_columns_is_seen(spark: SparkSession) -> None:
    columns = [(f.col("id") + number).alias(f"c{number}") for number in range(COLUMNS)]
    changed = [*columns[:-1], (f.col("id") * 2).alias(f"c{COLUMNS - 1}")]
    before = spark.conf.get("spark.sql.debug.maxToStringFields")
    first, again, other = (fingerprint(spark.range(1).select(*each)) for each in
                           (columns, columns, changed))  # fmt: skip
    assert first == again
    assert first != other
    nested = (spark.range(1).select(f.struct(*each)) for each in (columns, changed))
    assert len({fingerprint(each) for each in nested}) == 2
    assert spark.conf.get("spark.sql.debug.maxToStringFields") == before


def test_rows_that_another_run_could_change_are_told_from_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = spark.readStream.schema("k STRING, v DOUBLE").json(str(tmp_path))
    # A file that is read anew for each batch, as a table is.
    (tmp_path / "table").mkdir()
    table = spark.read.schema("k STRING").json(str(tmp_path / "table"))

    def changes(rows: DataFrame, *, is_by_key: bool = False) -> bool:
        plan = rows._jdf.queryExecution().analyzed()
        return may_change(plan, plan_text(plan, rows), is_by_key=is_by_key)

    for still in (
        stream.where("v > 1").selectExpr("upper(k) AS value", "current_timestamp() AS at"),
        stream.join(spark.range(3).selectExpr("CAST(id AS STRING) AS k"), "k"),
        stream.select(f.udf(str.upper, "string")("k")),
    ):
        assert not changes(still)
    for changing in (
        stream.withColumn("r", f.rand()),
        stream.join(table, "k"),
        stream.dropDuplicates(["k"]),
        stream.select(f.udf(str.upper, "string").asNondeterministic()("k")),
    ):
        assert changes(changing)
        assert changes(changing, is_by_key=True)
    assert changes(stream.limit(3), is_by_key=True)
    assert changes(stream.groupBy("k").sum("v"))
    assert not changes(stream.groupBy("k").sum("v"), is_by_key=True)


def test_a_key_is_settled_that_single_records_make(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("k STRING, v DOUBLE, at TIMESTAMP").json(str(tmp_path))

    def is_settled(rows: DataFrame, *names: str) -> bool:
        return are_settled(rows._jdf.queryExecution().analyzed(), names)

    window = f.window("at", "1 minute")
    counts = stream.withWatermark("at", "1 minute").groupBy(window, "k").count()
    named = counts.select(f.concat("k", f.col("window.start").cast("string")).alias("key"), "count")
    assert is_settled(stream, "k", "V")
    assert is_settled(counts, "k", "window")
    assert is_settled(named, "key")
    assert not is_settled(named, "key", "count")
    leaders = stream.groupBy("k").agg(f.max_by("k", "v").alias("leader"))
    assert is_settled(leaders, "k")
    assert not is_settled(leaders.select(f.upper("leader").alias("key")), "key")
    # What cannot be followed is not trusted.
    assert not is_settled(stream.union(stream), "k")
    grouped = stream.groupBy("k").applyInPandas(lambda frame: frame, stream.schema)
    assert not is_settled(grouped, "k")


def test_kept_rows_are_those_of_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(5).select(f.rand().alias("r"))
    first = [row.r for row in keep(rows, str(tmp_path), 3).sort("r").collect()]
    again = [row.r for row in keep(rows, str(tmp_path), 3).sort("r").collect()]
    assert first == again
    keep(rows, str(tmp_path), 4)
    assert [path.name for path in (tmp_path / "headrace-rows").iterdir()] == ["4"]


def test_a_checkpoint_with_an_open_batch_and_no_pin_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("1\n")
    rows = spark.readStream.schema("value STRING").text(str(tmp_path / "in"))
    place = tmp_path / "checkpoint"
    run_to_end(rows.writeStream.format("noop").option("checkpointLocation", str(place)))
    forget_last_batch(place)
    files, pin = HadoopFiles(spark), Pin(2, ("key",), "p", "t")
    with pytest.raises(PlanChanged, match="no pin, and batch 0 is half written"):
        hold(files, str(place), pin)
    hold(files, str(tmp_path / "new"), pin)
    with pytest.raises(PlanChanged, match="the topic was t and is u"):
        hold(files, str(tmp_path / "new"), Pin(2, ("key",), "p", "u"))

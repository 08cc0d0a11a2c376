"""Exactly once into topics: what a fingerprint sees, and which rows are saved for a rerun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f
from tests.spark.reruns import forget_last_batch, run_to_end

from headrace.spark.errors import PlanChanged
from headrace.spark.pipelines.hadoop_files import HadoopFiles
from headrace.spark.pipelines.plans import (
    are_from_single_records,
    may_change,
    plan_fingerprint,
    plan_text,
)
from headrace.spark.pipelines.topic_batches import (
    TaskLayout,
    check_layout,
    differences,
    open_batch,
    saved_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = 40

PLAN = """Project [_key#31, cast(count#45L as string) AS value#60]
+- Aggregate [window#50-T600000ms, user#12], [window#50 AS w#51, user#12, count(1) AS count#45L]
   +- Filter exists(tags#9, lambdafunction((lambda x_4#77 = a), lambda x_4#77, false))
      +- EventTimeWatermark 0f8e1b2c-aaaa-bbbb-cccc-0123456789ab, at#8, 10 minutes
         +- StreamingRelationV2 Python@5e3fa, headrace, [bootstrap=a:1, group=g], [user#12]
"""


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


def test_keys_of_single_records_are_recognised(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("k STRING, v DOUBLE, at TIMESTAMP").json(str(tmp_path))

    def is_single(rows: DataFrame, *names: str) -> bool:
        return are_from_single_records(rows._jdf.queryExecution().analyzed(), names)

    window = f.window("at", "1 minute")
    counts = stream.withWatermark("at", "1 minute").groupBy(window, "k").count()
    named = counts.select(f.concat("k", f.col("window.start").cast("string")).alias("key"), "count")
    assert is_single(stream, "k", "V")
    assert is_single(counts, "k", "window")
    assert is_single(named, "key")
    assert not is_single(named, "key", "count")
    leaders = stream.groupBy("k").agg(f.max_by("k", "v").alias("leader"))
    assert is_single(leaders, "k")
    assert not is_single(leaders.select(f.upper("leader").alias("key")), "key")
    # What cannot be followed is not trusted.
    assert not is_single(stream.union(stream), "k")
    grouped = stream.groupBy("k").applyInPandas(lambda frame: frame, stream.schema)
    assert not is_single(grouped, "k")


def test_saved_rows_are_those_of_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(5).select(f.rand().alias("r"))
    first = [row.r for row in saved_rows(rows, str(tmp_path), 3).sort("r").collect()]
    again = [row.r for row in saved_rows(rows, str(tmp_path), 3).sort("r").collect()]
    assert first == again
    saved_rows(rows, str(tmp_path), 4)
    assert [path.name for path in (tmp_path / "headrace-rows").iterdir()] == ["4"]


def test_a_checkpoint_with_an_open_batch_and_no_plan_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("1\n")
    rows = spark.readStream.schema("value STRING").text(str(tmp_path / "in"))
    checkpoint = tmp_path / "checkpoint"
    run_to_end(rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)))
    forget_last_batch(checkpoint)
    files, layout = HadoopFiles(spark), TaskLayout(2, ("key",), "p", "t")
    with pytest.raises(PlanChanged, match="no plan, and batch 0 is half written"):
        check_layout(files, str(checkpoint), layout)
    check_layout(files, str(tmp_path / "new"), layout)
    with pytest.raises(PlanChanged, match="the topic was t and is u"):
        check_layout(files, str(tmp_path / "new"), TaskLayout(2, ("key",), "p", "u"))


def test_the_same_query_in_another_run_has_the_same_fingerprint() -> None:
    again = (
        PLAN.replace("#31", "#131")
        .replace("#45L", "#7L")
        .replace("@5e3fa", "@77aa1")
        .replace("#12", "#900")
        .replace("x_4#77", "x_11#5")
        .replace("0f8e1b2c-aaaa", "11223344-dddd")
    )
    assert plan_fingerprint(again) == plan_fingerprint(PLAN)


def test_where_and_how_fast_a_source_is_read_changes_no_fingerprint() -> None:
    elsewhere = PLAN.replace("bootstrap=a:1", "bootstrap=b:2, maxOffsetsPerTrigger=5")
    assert plan_fingerprint(elsewhere) == plan_fingerprint(PLAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [("user#12]", "country#12]"), ("as string", "as binary"), ("T600000ms", "T1ms")],
)
def test_another_query_has_another_fingerprint(old: str, new: str) -> None:
    assert plan_fingerprint(PLAN.replace(old, new)) != plan_fingerprint(PLAN)


def test_expressions_that_change_places_change_the_fingerprint() -> None:
    assert plan_fingerprint("a#1 b#2 a#1") != plan_fingerprint("a#1 b#2 a#2")


def test_differences_are_said_in_words() -> None:
    kept = TaskLayout(4, ("key",), "p")
    assert differences(kept, kept) == []
    assert differences(kept, TaskLayout(8, ("user",), "q")) == [
        "tasks were 4 and are 8",
        "the key was key and is user",
        "the query's plan has changed",
    ]
    assert TaskLayout.from_json(kept.to_json()) == kept


def test_a_batch_that_was_begun_and_not_finished_is_open() -> None:
    assert open_batch([], []) is None
    assert open_batch(["0", "1", ".2.crc"], ["0", "1"]) is None
    assert open_batch(["9", "10"], ["9"]) == 10
    assert open_batch(["0"], []) == 0

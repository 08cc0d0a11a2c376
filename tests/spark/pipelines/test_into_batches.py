"""Batches into SQL and Parquet: each once, with its id, whoever runs it again."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.reruns import forget_last_batch, run_to_end

from headrace.spark import into_parquet, into_sql
from headrace.spark.errors import CheckpointTooOld, SinkError
from headrace.spark.pipelines.sql_batches import SqlTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 50


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/rows.db"
    else:
        yield request.getfixturevalue("postgres").database()


def query(url: str, sql: str) -> list[tuple[object, ...]]:
    from headrace.spark.pipelines.sql_batches import open_sql

    with open_sql(url) as database, database.connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def rows(spark: SparkSession, folder: Path) -> DataFrame:
    stream = spark.readStream.schema("value STRING").text(str(folder))
    return stream.selectExpr("CAST(value AS BIGINT) AS n", "CAST(value % 7 AS INT) AS k")


def write_numbers(folder: Path, name: str, first: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{number}\n" for number in range(first, first + COUNT)))


def test_a_batch_is_in_the_table_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    write_numbers(tmp_path / "in", "a.txt", 0)
    stream = rows(spark, tmp_path / "in").writeStream.foreachBatch(into_sql(url, "numbers"))
    writer = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_end(writer)
    forget_last_batch(tmp_path / "checkpoint")
    write_numbers(tmp_path / "in", "b.txt", COUNT)
    run_to_end(writer)
    assert query(url, "SELECT n, k FROM numbers ORDER BY n") == [
        (number, number % 7) for number in range(2 * COUNT)
    ]
    [(batch,)] = query(url, "SELECT batch FROM headrace_batches")
    assert batch == 1


def test_keys_replace_rows_and_deletes_remove_them(spark: SparkSession, url: str) -> None:
    write = into_sql(url, "people", keys=["id"], deletes="gone", name="test")
    schema = "id STRING, name STRING, tags ARRAY<STRING>, gone BOOLEAN"
    first = [("a", "Ada", ["x"], False), ("b", "Bob", None, False), ("b", "Bea", None, False)]
    write(spark.createDataFrame(first, schema).coalesce(1), 0)
    write(spark.createDataFrame([("a", "no", None, True)], schema), 0)
    second: list[tuple[Any, ...]] = [("a", None, None, True), ("c", "Cy", [], False)]
    write(spark.createDataFrame(second, schema), 1)
    assert query(url, "SELECT id, name, tags FROM people ORDER BY id") == [
        ("b", "Bea", None),
        ("c", "Cy", "[]"),
    ]
    with pytest.raises(CheckpointTooOld):
        write(spark.createDataFrame(second, schema), 0)


def test_rows_are_deleted_by_a_time_wherever_the_clock_is(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        write = into_sql(url, "starts", keys=["began"], deletes="gone", name="test")
        rows = spark.sql("SELECT timestamp_seconds(id) AS began, false AS gone FROM range(3)")
        write(rows, 0)
        write(rows.where("began < timestamp_seconds(2)").selectExpr("began", "true AS gone"), 1)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert query(url, "SELECT count(*) FROM starts") == [(1,)]


def test_who_writes_the_same_batch_at_the_same_time_writes_it_once(
    spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both have looked before either has written.
    met = threading.Barrier(2, timeout=60)

    def look(*_: object) -> None:
        met.wait()

    monkeypatch.setattr(SqlTarget, "_last", look)

    def write() -> None:
        into_sql(url, "numbers", name="test")(spark.createDataFrame([(1,), (2,)], "n INT"), 0)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(write) for _ in range(2)]:
            each.result(120)
    assert query(url, "SELECT n FROM numbers ORDER BY n") == [(1,), (2,)]


def test_a_batch_may_go_into_two_tables(spark: SparkSession, url: str) -> None:
    for batch in range(2):
        for table in ("orders", "lines"):
            frame = spark.createDataFrame([(batch,)], "n INT")
            for _ in range(2):
                into_sql(url, table, name="test")(frame, batch)
    for table in ("orders", "lines"):
        assert query(url, f"SELECT n FROM {table} ORDER BY n") == [(0,), (1,)]


def test_a_row_without_its_key_is_refused_in_words(spark: SparkSession, tmp_path: Path) -> None:
    write = into_sql(f"sqlite:///{tmp_path}/x.db", "t", keys=["id"], name="test")
    with pytest.raises(SinkError, match=r"a null in 'id', which is a key of t.*IS NOT NULL"):
        write(spark.createDataFrame([(None, 1)], "id STRING, n INT"), 0)


def test_mode_replace_keeps_only_the_last_batch(spark: SparkSession, url: str) -> None:
    write = into_sql(url, "totals", mode="replace", name="test")
    write(spark.createDataFrame([(1,), (2,)], "n INT"), 0)
    write(spark.createDataFrame([(3,)], "n INT"), 1)
    assert query(url, "SELECT n FROM totals") == [(3,)]


def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    url = f"sqlite:///{tmp_path}/rows.db"
    frame = spark.range(2).select(f.raise_error(f.lit("broken")).cast("string").alias("x"))
    with pytest.raises(Exception, match="broken"):
        into_sql(url, "t", name="test")(frame, 0)
    into_sql(url, "t", name="test")(spark.createDataFrame([("fine",)], "x STRING"), 0)
    assert sqlite3.connect(tmp_path / "rows.db").execute("SELECT x FROM t").fetchall() == [
        ("fine",)
    ]


@pytest.mark.parametrize("sink", ["table", "folder"])
def test_a_batch_with_state_that_is_there_already_is_passed_over(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    url = f"sqlite:///{tmp_path}/rows.db"
    write_numbers(tmp_path / "in", "a.txt", 0)
    counts = rows(spark, tmp_path / "in").groupBy("k").count()
    write = (
        into_sql(url, "counts", keys=["k"])
        if sink == "table"
        else into_parquet(str(tmp_path / "out"))
    )
    stream = counts.writeStream.foreachBatch(write).outputMode("update")
    writer = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_end(writer)
    forget_last_batch(tmp_path / "checkpoint")
    write_numbers(tmp_path / "in", "b.txt", COUNT)
    run_to_end(writer)
    if sink == "table":
        assert query(url, "SELECT sum(count) FROM counts") == [(2 * COUNT,)]
    else:
        found = spark.read.parquet(str(tmp_path / "out")).groupBy("batch").sum("count").collect()
        assert sorted(tuple(row) for row in found) == [(0, COUNT), (1, 2 * COUNT)]


def test_wrong_use_is_refused_with_a_hint(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1,)], "n INT")
    with pytest.raises(SinkError, match="not a batch of a streaming query"):
        into_sql(f"sqlite:///{tmp_path}/x.db", "t")(frame, 0)
    with pytest.raises(SinkError, match="no column 'id'"):
        into_sql(f"sqlite:///{tmp_path}/x.db", "t", keys=["id"], name="x")(frame, 0)
    with pytest.raises(SinkError, match="needs keys"):
        into_sql("sqlite://", "t", deletes="gone")


def test_a_batch_is_a_folder_that_appears_whole(spark: SparkSession, tmp_path: Path) -> None:
    write_numbers(tmp_path / "in", "a.txt", 0)
    out = tmp_path / "out"
    stream = rows(spark, tmp_path / "in").writeStream
    writer = stream.foreachBatch(into_parquet(str(out), partition_by=["k"]))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_end(writer)
    forget_last_batch(tmp_path / "checkpoint")
    # What a killed driver left behind is not read.
    (out / "_unfinished" / "1-x").mkdir(parents=True)
    write_numbers(tmp_path / "in", "b.txt", COUNT)
    run_to_end(writer)
    found = spark.read.parquet(str(out))
    assert sorted(row.n for row in found.collect()) == list(range(2 * COUNT))
    assert {row.batch for row in found.select("batch").distinct().collect()} == {0, 1}
    assert (out / "batch=0" / "k=3").is_dir()
    with pytest.raises(SinkError, match="another query"):
        into_parquet(str(out), name="other")(found.drop("batch"), 2)
    with pytest.raises(SinkError, match="column 'batch' is reserved"):
        into_parquet(str(out), name="other")(found, 2)
    owner = (out / "_headrace.json").read_text()
    writer_name = owner.split('"')[3]
    (out / "batch=0").rename(out / "_gone")
    with pytest.raises(CheckpointTooOld):
        into_parquet(str(out), name=writer_name)(found.drop("batch"), 0)

"""Aliases of tables and folders: changed at once, wherever they lie, and for the same readers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.spark import Folder, Table, live_folder
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.aliases import live_version, make_live
from headrace.spark.pipelines.outputs import drop_output, output_exists
from headrace.spark.pipelines.sql_batches import open_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.postgres import Postgres

NOWHERE = "127.0.0.1:1"


def run(url: str, *statements: str) -> list[tuple[object, ...]]:
    with open_sql(url) as database, database.connect() as connection:
        for each in statements:
            found = connection.exec_driver_sql(each)
        rows = [tuple(row) for row in found] if found.returns_rows else []
        connection.commit()
    return rows


def test_who_may_read_a_view_may_read_it_after_a_switch(postgres: Postgres) -> None:
    url = postgres.database()
    sink = Table(url, "totals")
    run(
        url,
        "CREATE TABLE totals_v1 (a INT)",
        "CREATE TABLE totals_v2 (a INT, b INT)",
        "CREATE TABLE totals_v3 (b INT)",
        "CREATE ROLE totals_reader",
    )
    make_live(NOWHERE, sink, 1)
    run(url, "GRANT SELECT ON totals TO totals_reader", "GRANT SELECT ON totals TO PUBLIC")
    allowed = (
        "SELECT count(*) FROM information_schema.table_privileges WHERE table_name = 'totals' "
        "AND grantee IN ('totals_reader', 'PUBLIC')"
    )
    # More columns, other columns, and back.
    for version in (2, 3, 1):
        make_live(NOWHERE, sink, version)
        assert live_version(NOWHERE, sink) == version
        assert run(url, allowed) == [(2,)]
    run(url, "CREATE VIEW above AS SELECT a FROM totals")
    with pytest.raises(
        PipelineError,
        match=r"columns of the view totals cannot be changed.*drop what depends on it",
    ):
        make_live(NOWHERE, sink, 3)
    assert live_version(NOWHERE, sink) == 1


def test_a_folder_without_links_is_switched_and_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A file system of Hadoop's that is none of this machine's to whoever looks at its name.
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.far.link./data", f"file://{tmp_path}")
    url = "viewfs://far/data/numbers"
    sink = Folder(url)
    for version in (1, 2):
        spark.range(version).write.parquet(sink.output(version))
    assert live_version(NOWHERE, sink) is None
    with pytest.raises(PipelineError, match="no version"):
        live_folder(spark, url)
    for version in (1, 2):
        make_live(NOWHERE, sink, version)
        assert live_version(NOWHERE, sink) == version
        assert spark.read.parquet(live_folder(spark, url)).count() == version
    drop_output(sink, 1, {})
    assert not output_exists(sink, 1, {})
    assert output_exists(sink, 2, {})

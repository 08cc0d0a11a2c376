"""Compares two versions of an output: how many rows each has, and which keys differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.sinks import Sink, Table, Topic
from headrace.spark.pipelines.sql_batches import open_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_MAX = 20

Keyed = tuple[tuple[Any, ...], str]


@dataclass(slots=True)
class Comparison:
    """The rows of both versions, the keys that differ or that only one has, and examples."""

    old_rows: int = 0
    new_rows: int = 0
    same: int = 0
    different: int = 0
    only_old: int = 0
    only_new: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a JSON object."""
        return asdict(self)

    def add(self, key: tuple[Any, ...], old: str | None, new: str | None) -> None:
        """Count a key by its rows, None where there is none; the first differences are examples."""
        self.old_rows += old is not None
        self.new_rows += new is not None
        if old == new:
            self.same += 1
            return
        kind = "only_old" if new is None else "only_new" if old is None else "different"
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES_MAX:
            shown = [_shown(part) for part in key]
            self.examples.append({"key": shown, "kind": kind, "old": old, "new": new})


def compare_sorted(old: Iterable[Keyed], new: Iterable[Keyed]) -> Comparison:
    """Compare rows that are sorted by key, with each key once."""
    found = Comparison()
    olds = ((key, "old", row) for key, row in old)
    news = ((key, "new", row) for key, row in new)
    for key, rows in groupby(merge(olds, news, key=itemgetter(0)), key=itemgetter(0)):
        by_side = {side: row for _, side, row in rows}
        found.add(key, by_side.get("old"), by_side.get("new"))
    return found


def compare(
    spark: SparkSession,
    sink: Sink,
    old: int,
    new: int,
    options: Mapping[str, str],
) -> Comparison:
    """Compare two versions of a sink's output by the last row of each key."""
    first, second = (_keyed(spark, sink, version, options) for version in (old, new))
    return compare_sorted(_sorted_rows(first), _sorted_rows(second))


def _keyed(spark: SparkSession, sink: Sink, version: int, options: Mapping[str, str]) -> DataFrame:
    """An output as text columns `k0, k1, ...` and `row`, each key once."""
    from pyspark.sql import functions as f

    output = sink.output(version)
    if isinstance(sink, Topic):
        from headrace.spark.pipelines.frames import latest_by_key

        read = spark.read.format("headrace").options(**options).option("subscribe", output).load()
        if not sink.keys:
            # Without keys a value is its own key, and its number of occurrences can differ.
            counted = read.groupBy(f.col("value").cast("string").alias("k0")).count()
            return counted.select("k0", f.col("count").cast("string").alias("row"))
        latest = latest_by_key(read)
        return latest.select(
            f.col("key").cast("string").alias("k0"), f.col("value").cast("string").alias("row")
        )
    rows = _table(spark, sink, output) if isinstance(sink, Table) else _folder(spark, output)
    keys = list(sink.keys)
    missing = [key for key in keys if key not in rows.columns]
    if missing:
        raise PipelineError(
            f"{output} has no column {missing[0]!r}", f"columns: {', '.join(rows.columns)}"
        )
    whole = f.to_json(f.struct(*sorted(rows.columns)))
    if not keys:
        counted = rows.groupBy(whole.alias("k0")).count()
        return counted.select("k0", f.col("count").cast("string").alias("row"))
    named = [f.col(key).cast("string").alias(f"k{number}") for number, key in enumerate(keys)]
    return rows.groupBy(*named).agg(f.to_json(f.sort_array(f.collect_list(whole))).alias("row"))


def _folder(spark: SparkSession, output: str) -> DataFrame:
    # The number of the batch does not belong to the output's content.
    return spark.read.parquet(output).drop("batch")


def _table(spark: SparkSession, sink: Table, output: str) -> DataFrame:
    from sqlalchemy import MetaData
    from sqlalchemy import Table as SqlTable

    with open_sql(sink.url) as database, database.connect() as connection:
        table = SqlTable(output, MetaData(), autoload_with=connection)
        names = table.columns.keys()
        rows = [tuple(map(_text, row)) for row in connection.execute(table.select())]
    schema = ", ".join(f"`{name}` STRING" for name in names)
    return spark.createDataFrame(rows, schema)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _sorted_rows(frame: DataFrame) -> Iterator[Keyed]:
    keys = [name for name in frame.columns if name != "row"]
    # Spark sorts texts by their UTF-8 bytes, so the comparison uses these as well.
    for row in frame.sort(*keys).toLocalIterator(prefetchPartitions=True):
        yield tuple(_sortable(row[key]) for key in keys), row["row"]


def _sortable(text: str | None) -> bytes:
    """A part of a key that sorts as in Spark: null before all texts, also before an empty one."""
    return b"" if text is None else b"=" + text.encode()


def _shown(part: Any) -> str | None:
    if not isinstance(part, bytes):
        return str(part)
    return part[1:].decode() if part else None

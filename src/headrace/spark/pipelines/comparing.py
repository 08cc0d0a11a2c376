"""Two versions of an output side by side: how many rows, and which keys differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.sinks import Sink, Table, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_MAX = 20

Keyed = tuple[tuple[Any, ...], str]


@dataclass(slots=True)
class Comparison:
    """Counts of both, and of the keys that only one has or that differ; some of them by name."""

    old_rows: int = 0
    new_rows: int = 0
    same: int = 0
    different: int = 0
    only_old: int = 0
    only_new: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def note(self, kind: str, key: tuple[Any, ...], old: str | None, new: str | None) -> None:
        """Count a key that differs, and keep it as an example if there are few."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES_MAX:
            shown = [_shown(part) for part in key]
            self.examples.append({"key": shown, "kind": kind, "old": old, "new": new})


def compare_sorted(old: Iterable[Keyed], new: Iterable[Keyed]) -> Comparison:
    """Compare rows that both come in the order of their keys, each key once."""
    found = Comparison()
    left, right = iter(old), iter(new)
    one, other = _next(left), _next(right)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            found.old_rows += 1
            found.note("only_old", one[0], one[1], None)
            one = _next(left)
        elif one is None or other[0] < one[0]:
            found.new_rows += 1
            found.note("only_new", other[0], None, other[1])
            other = _next(right)
        else:
            found.old_rows += 1
            found.new_rows += 1
            if one[1] == other[1]:
                found.same += 1
            else:
                found.note("different", one[0], one[1], other[1])
            one, other = _next(left), _next(right)
    return found


def compare(
    spark: SparkSession,
    sink: Sink,
    old: int,
    new: int,
    options: Mapping[str, str],
) -> Comparison:
    """Compare two versions of a sink's output, key by key; of a key written often, the last."""
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
            # Without keys a value is its own key, and how often it is there is what can differ.
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
        raise PipelineError(f"{output} has no column {missing[0]!r}", f"{', '.join(rows.columns)}")
    whole = f.to_json(f.struct(*sorted(rows.columns)))
    if not keys:
        counted = rows.groupBy(whole.alias("k0")).count()
        return counted.select("k0", f.col("count").cast("string").alias("row"))
    named = [f.col(key).cast("string").alias(f"k{number}") for number, key in enumerate(keys)]
    return rows.groupBy(*named).agg(f.to_json(f.sort_array(f.collect_list(whole))).alias("row"))


def _folder(spark: SparkSession, output: str) -> DataFrame:
    # The number of the batch is no part of the output's content.
    return spark.read.parquet(output).drop("batch")


def _table(spark: SparkSession, sink: Table, output: str) -> DataFrame:
    from sqlalchemy import MetaData
    from sqlalchemy import Table as SqlTable

    from headrace.spark.pipelines.sql_batches import open_sql

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
    # Compared here as Python compares, so sorted by the same order: bytes of UTF-8.
    for row in frame.sort(*keys).toLocalIterator(prefetchPartitions=True):
        yield tuple(_part(row[key]) for key in keys), row["row"]


def _part(text: str | None) -> bytes:
    """A part of a key that sorts as Spark sorts: null before all texts, and not as an empty one."""
    return b"" if text is None else b"=" + text.encode()


def _shown(part: Any) -> str | None:
    if not isinstance(part, bytes):
        return str(part)
    return part[1:].decode() if part else None


def _next(rows: Iterator[Keyed]) -> Keyed | None:
    return next(rows, None)

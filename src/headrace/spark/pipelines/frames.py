"""The DataFrames of a pipeline: the events of its sources, the rows for its sink, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headrace.client.dead_letters import (
    ATTEMPTS_HEADER,
    ERROR_HEADER,
    FINGERPRINT_HEADER,
    HANDLER_HEADER,
    SOURCE_HEADER,
    VERSION_HEADER,
    topic_of,
)
from headrace.client.message import ID_HEADER
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.sinks import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.definitions import Pipeline, Source
    from headrace.spark.pipelines.values import ValueFormat

# The record of a typed event, as columns beside the event's own fields.
RECORD_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_deleted")
FINGERPRINT_CHARS = 12

_OURS = (
    ID_HEADER, ERROR_HEADER, FINGERPRINT_HEADER, ATTEMPTS_HEADER, SOURCE_HEADER, HANDLER_HEADER,
    VERSION_HEADER,
)  # fmt: skip


class Connector(NamedTuple):
    """The connector that a pipeline reads with: its options and its name."""

    options: Mapping[str, str]
    name: str = "headrace"


def rows_of(spark: SparkSession, pipeline: Pipeline, connector: Connector) -> DataFrame:
    """The rows that a pipeline's function returns for its sources."""
    frames = {
        name: events(spark, pipeline, source, connector)
        for name, source in pipeline.sources.items()
    }
    only = len(frames) == 1
    rows = pipeline.function(*frames.values()) if only else pipeline.function(**frames)
    if not isinstance(rows, DataFrame):
        raise PipelineError(
            f"{pipeline.name} returned {type(rows).__name__}", "a pipeline returns a DataFrame"
        )
    if not rows.isStreaming:
        raise PipelineError(
            f"{pipeline.name} returned rows that do not stream", "derive them from its source"
        )
    return rows


def events(
    spark: SparkSession, pipeline: Pipeline, source: Source, connector: Connector
) -> DataFrame:
    """The events of a source, without those that cannot be decoded."""
    raw = _read(spark, pipeline, source, connector, as_table=source.latest)
    # Bad values are dropped first, so that the last good value of a key stays in a table.
    good = raw if source.value is None else _decoded(raw, source.value).where("_cause IS NULL")
    found = latest_by_key(good) if source.latest else good
    if source.value is not None:
        found = _fields(found, source.value)
    if source.watermark is not None:
        column, late = source.watermark
        if column not in found.columns:
            raise PipelineError(
                f"the watermark's column {column!r} does not exist",
                f"columns: {', '.join(found.columns)}",
            )
        found = found.withWatermark(column, late)
    return found


def dead_letters(spark: SparkSession, pipeline: Pipeline, connector: Connector) -> DataFrame | None:
    """Records for the values that cannot be decoded; None if no source has typed values."""
    found = None
    for source in pipeline.sources.values():
        if source.value is None:
            continue
        raw = _read(spark, pipeline, source, connector, headers=True)
        bad = _decoded(raw, source.value).where("_cause IS NOT NULL")
        each = bad.select(*_letter(pipeline, source))
        found = each if found is None else found.unionByName(each)
    return found


def records(rows: DataFrame, sink: Topic) -> DataFrame:
    """Rows as records of a topic: unchanged if they have a column value, else as JSON objects."""
    kinds = dict(rows.dtypes)
    missing = [name for name in sink.keys if name not in kinds]
    if missing:
        raise PipelineError(
            f"the key's column {missing[0]!r} does not exist",
            f"columns: {', '.join(kinds)}",
        )
    key = None
    if len(sink.keys) == 1:
        is_bytes = kinds[sink.keys[0]] == "binary"
        key = f.col(sink.keys[0]) if is_bytes else f.col(sink.keys[0]).cast("string")
    elif sink.keys:
        key = f.to_json(f.struct(*sink.keys))
    if kinds.get("value") in ("string", "binary"):
        return rows if key is None else rows.withColumn("key", key)
    value = f.to_json(f.struct(*rows.columns)).alias("value")
    return rows.select(value) if key is None else rows.select(key.alias("key"), value)


def task_key(rows: DataFrame) -> Column:
    """What partitions records among tasks: the key, or the value where there is no key."""
    value = f.col("value").cast("binary")
    return f.coalesce(f.col("key").cast("binary"), value) if "key" in rows.columns else value


def latest_by_key(raw: DataFrame) -> DataFrame:
    """The last record of each key of a topic, without deleted keys.

    A key may have moved because its topic was given more partitions; then the latest time decides.
    """
    keys = (f.col("key").alias("_by"), f.col("partition").alias("_in"))
    within = f.max_by(f.struct(*raw.columns), f.col("offset")).alias("_of")
    lasts = raw.where("key IS NOT NULL").groupBy(*keys).agg(within)
    newest = f.max_by(f.col("_of"), f.struct("_of.timestamp", "_in")).alias("_of")
    return lasts.groupBy("_by").agg(newest).select("_of.*").where("value IS NOT NULL")


def _read(
    spark: SparkSession,
    pipeline: Pipeline,
    source: Source,
    connector: Connector,
    *,
    headers: bool = False,
    as_table: bool = False,
) -> DataFrame:
    options: dict[str, Any] = {**connector.options, "subscribe": source.topic}
    if headers:
        options["includeHeaders"] = "true"
    if as_table:
        limits = ("maxoffsetspertrigger", "startingoffsets", "group")
        kept = {name: each for name, each in options.items() if name.lower() not in limits}
        return spark.read.format(connector.name).options(**kept).load()
    # Spark ignores the case of option names, so an option must not be given in two spellings.
    taken = {name.lower() for name in options}
    theirs = {name: each for name, each in pipeline.options.items() if name.lower() not in taken}
    # A table is read from its beginning, wherever the stream beside it starts.
    begin = "earliest" if source.latest else pipeline.start
    options = {"startingOffsets": begin, **theirs, **options}
    return spark.readStream.format(connector.name).options(**options).load()


def _decoded(raw: DataFrame, value: ValueFormat) -> DataFrame:
    """The records with `_fields` and `_cause`, which is null for a good value."""
    found = raw.withColumn("_read", value.read(f.col("value")))
    cause = f.col("_read.cause")
    needed = [field.name for field in value.schema.fields if not field.nullable]
    for name in needed:
        is_missing = f.col("value").isNotNull() & f.col(f"_read.fields.`{name}`").isNull()
        cause = f.coalesce(cause, f.when(is_missing, f.lit(f"{name} is missing")))
    return found.select("*", f.col("_read.fields").alias("_fields"), cause.alias("_cause"))


def _fields(good: DataFrame, value: ValueFormat) -> DataFrame:
    """The fields of decoded records, with the columns of the record itself."""
    names = [field.name for field in value.schema.fields]
    taken = [name for name in names if name in RECORD_COLUMNS]
    if taken:
        raise PipelineError(f"a value's field may not be called {taken[0]!r}", "rename it")
    return good.select(
        *(f.col(f"_fields.`{name}`").alias(name) for name in names),
        *(f.col(name).alias(f"_{name}") for name in ("key", "topic", "partition", "offset")),
        f.col("timestamp").alias("_timestamp"),
        f.col("value").isNull().alias("_deleted"),
    )


def _letter(pipeline: Pipeline, source: Source) -> list[Column]:
    """A dead letter in the form of a handler's, from a record with a cause."""
    no_headers = f.array().cast("array<struct<key:string,value:binary>>")
    given = f.coalesce(f.col("headers"), no_headers)
    theirs = f.filter(given, lambda header: ~header["key"].isin(*_OURS))
    ids = f.filter(given, lambda header: header["key"] == ID_HEADER)
    origin = f.concat_ws("/", "topic", "partition", "offset")
    fingerprint = f.substring(
        f.sha2(f.concat(f.lit(f"{pipeline.name}|"), f.regexp_replace("_cause", r"\d+", "0")), 256),
        1,
        FINGERPRINT_CHARS,
    )
    ours = {
        ID_HEADER: f.coalesce(f.try_element_at(ids, f.lit(-1))["value"].cast("string"), origin),
        ERROR_HEADER: f.concat(f.lit("UndecodableValue: "), f.col("_cause")),
        FINGERPRINT_HEADER: fingerprint,
        ATTEMPTS_HEADER: f.lit("1"),
        SOURCE_HEADER: origin,
        HANDLER_HEADER: f.lit(pipeline.name),
        VERSION_HEADER: f.lit(str(pipeline.version)),
    }
    added = f.array(
        *(
            f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in ours.items()
        )
    )
    return [
        f.col("key"),
        f.col("value"),
        f.concat(theirs, added).alias("headers"),
        f.lit(pipeline.dead_letters or topic_of(source.topic)).alias("topic"),
    ]

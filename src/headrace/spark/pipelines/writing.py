"""Starting a pipeline's queries: each sink in its own exactly-once way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.client.settings import settings_of
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.frames import Connection, letters, parting, records, rows_of
from headrace.spark.pipelines.parquet_batches import into_parquet
from headrace.spark.pipelines.pins import exactly_once
from headrace.spark.pipelines.sinks import Folder, Table, Topic
from headrace.spark.pipelines.sql_batches import into_sql
from headrace.spark.pipelines.way_back import by_batches
from headrace.spark.pipelines.windows import records_per_batch, records_per_trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headrace.client.settings import Kind
    from headrace.spark.pipelines.definitions import Pipeline

LETTER_TASKS = 1
# With a rate, a batch is begun every so often; all of it is read at once.
RATE_TRIGGER_SECONDS = 1.0
CONNECTORS = ("headrace", "kafka")
CAP = "maxOffsetsPerTrigger"

_SECONDS = re.compile(r"(\d+(?:\.\d+)?) *(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)")
_UNITS = {"m": 60.0, "h": 3600.0, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Start:
    """How a pipeline is started."""

    bootstrap: str
    checkpoint: str
    settings: Mapping[str, str] = field(default_factory=dict)
    connector: str = "headrace"
    # Read what is there now and end.
    to_end: bool = False
    per_second: float | None = None
    repin: bool = False


def start_queries(spark: SparkSession, pipeline: Pipeline, start: Start) -> list[StreamingQuery]:
    """Start the query of a pipeline, and that of its dead letters if it has any.

    PlanChanged if the checkpoint was written with another plan.
    """
    if start.connector not in CONNECTORS:
        raise PipelineError(f"there is no connector {start.connector!r}", "headrace or kafka")
    reading = _reading(pipeline, start)
    rows = rows_of(spark, pipeline, reading)
    writers = [(pipeline.name, _writer(rows, pipeline, start))]
    # What looks for bad values reads the same records again, and is not to be seen in the lag.
    ungrouped = {name: each for name, each in reading.options.items() if name != "group"}
    bad = letters(spark, pipeline, Connection(ungrouped, start.connector))
    if bad is not None:
        aside = letters_checkpoint(start.checkpoint)
        letters_writer = _to_topic(bad, {}, parting(bad), LETTER_TASKS, aside, start)
        writers.append((f"{pipeline.name}.letters", letters_writer))
    started: list[StreamingQuery] = []
    try:
        for name, writer in writers:
            started.append(_triggered(writer, pipeline, start).queryName(name).start())
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def letters_checkpoint(checkpoint: str) -> str:
    """Where the query that looks for dead letters keeps its checkpoint."""
    return f"{checkpoint}-letters"


def group_of(pipeline: Pipeline) -> str:
    """The group that a pipeline's progress is committed to."""
    return f"headrace.pipeline.{pipeline.name}.v{pipeline.version}"


def trigger_seconds(text: str) -> float:
    """Seconds of `10 seconds` or `1 minute`; PipelineError for anything else."""
    found = _SECONDS.fullmatch(text.strip())
    if not found:
        raise PipelineError(f"{text!r} is no time from batch to batch", "10 seconds, 1 minute")
    number, unit = float(found[1]), found[2]
    return number / 1000 if unit.startswith(("ms", "milli")) else number * _UNITS[unit[0]]


def _reading(pipeline: Pipeline, start: Start) -> Connection:
    options = _options(start, "consumer")
    every_s = trigger_seconds(pipeline.trigger) if pipeline.trigger else RATE_TRIGGER_SECONDS
    if start.per_second is not None:
        options[CAP] = str(records_per_trigger(start.per_second, every_s))
    elif CAP.lower() not in map(str.lower, pipeline.options):
        options[CAP] = str(records_per_batch(every_s))
    if start.connector == "headrace":
        options["group"] = group_of(pipeline)
    else:
        # As our own source: its consumer would read what was never committed.
        options.setdefault("kafka.isolation.level", "read_committed")
    return Connection(options, start.connector)


def _options(start: Start, kind: Kind) -> dict[str, str]:
    """Options of a connector for the settings that one side's clients know."""
    fit = settings_of(start.settings, kind)
    return {
        "kafka.bootstrap.servers": start.bootstrap,
        **{f"kafka.{name}": value for name, value in fit.items()},
    }


def _writer(rows: DataFrame, pipeline: Pipeline, start: Start) -> DataStreamWriter:
    sink = pipeline.sink
    output = sink.output(pipeline.version)
    if isinstance(sink, Topic):
        made = records(rows, sink)
        writer = _to_topic(
            made,
            {**sink.options, "topic": output},
            # With a key of its own a row reaches the same task, whatever else it holds.
            "key" if sink.keys else parting(made),
            pipeline.tasks,
            start.checkpoint,
            start,
            pipeline.output_mode,
        )
    else:
        write: Callable[[DataFrame, int], None]
        if isinstance(sink, Table):
            write = _latest_first(
                sink,
                into_sql(
                    sink.url,
                    output,
                    keys=sink.keys,
                    deletes=sink.deletes,
                    mode="replace" if pipeline.output_mode == "complete" else "append",
                ),
            )
        else:
            write = into_parquet(output, partition_by=_partitions(sink, rows))
        writer = by_batches(rows, write)
        writer = writer.option("checkpointLocation", start.checkpoint)
        writer = writer.outputMode(pipeline.output_mode)
    return writer


def _to_topic(
    rows: DataFrame,
    given: Mapping[str, str],
    key: str | Column,
    tasks: int,
    checkpoint: str,
    start: Start,
    output_mode: str = "append",
) -> DataStreamWriter:
    options = {**_options(start, "producer"), **given}
    if start.connector == "kafka":
        official = rows.writeStream.format("kafka").options(**options)
        return official.option("checkpointLocation", checkpoint).outputMode(output_mode)
    return exactly_once(
        rows,
        tasks=tasks,
        key=key,
        checkpoint=checkpoint,
        options=options,
        output_mode=output_mode,
        repin=start.repin,
    )


def _triggered(writer: DataStreamWriter, pipeline: Pipeline, start: Start) -> DataStreamWriter:
    if start.to_end and start.per_second is None:
        return writer.trigger(availableNow=True)
    every = pipeline.trigger or (f"{RATE_TRIGGER_SECONDS} seconds" if start.per_second else None)
    return writer if every is None else writer.trigger(processingTime=every)


def _latest_first(
    sink: Table, write: Callable[[DataFrame, int], None]
) -> Callable[[DataFrame, int], None]:
    """Before a batch is written, keep of each key the row that counts."""
    column = sink.latest_by
    if column is None:
        return write

    def reduced(rows: DataFrame, batch: int) -> None:
        from pyspark.sql import functions as f

        # Within a struct, a null is the least; by itself, it would have no row at all.
        newest = f.max_by(f.struct(*rows.columns), f.struct(column))
        keys = [f.col(key).alias(f"_by_{key}") for key in sink.keys]
        write(rows.groupBy(*keys).agg(newest.alias("_of")).select("_of.*").drop(column), batch)

    return reduced


def _partitions(sink: Folder, rows: DataFrame) -> list[str]:
    missing: list[Any] = [name for name in sink.partition_by if name not in rows.columns]
    if missing:
        raise PipelineError(
            f"there is no column {missing[0]!r} to part the folder by",
            f"the rows have {', '.join(rows.columns)}",
        )
    return list(sink.partition_by)

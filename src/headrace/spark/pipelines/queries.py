"""Starts the queries of a pipeline: one for its sink, and one for its dead letters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.client.settings import settings_of
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.foreach_batch import write_batches
from headrace.spark.pipelines.frames import Connector, dead_letters, records, rows_of, task_key
from headrace.spark.pipelines.pacing import (
    rate_interval_s,
    records_per_batch,
    records_per_trigger,
    trigger_seconds,
)
from headrace.spark.pipelines.parquet_batches import into_parquet
from headrace.spark.pipelines.sinks import Folder, Table, Topic
from headrace.spark.pipelines.sql_batches import into_sql
from headrace.spark.pipelines.topic_batches import exactly_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headrace.client.settings import ClientKind
    from headrace.spark.pipelines.definitions import Pipeline
    from headrace.spark.pipelines.foreach_batch import ForeachBatch

DEAD_LETTER_TASKS = 1
# With a rate and no trigger of the pipeline's own, a batch begins at this interval.
RATE_TRIGGER_SECONDS = 1.0
CONNECTORS = ("headrace", "kafka")
MAX_OFFSETS = "maxOffsetsPerTrigger"


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """How the queries of a pipeline are started."""

    bootstrap: str
    checkpoint: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of Kafka clients."""
    connector: str = "headrace"
    to_end: bool = False
    """Read what is there now, then end."""
    records_per_s: float | None = None
    """The highest rate of each source."""
    repin: bool = False
    """Accept a changed plan, if no batch is half written."""


def start_queries(
    spark: SparkSession, pipeline: Pipeline, settings: QuerySettings
) -> list[StreamingQuery]:
    """Start the query of a pipeline, and that of its dead letters if it has any.

    PlanChanged if the checkpoint was written with another plan.
    """
    if settings.connector not in CONNECTORS:
        raise PipelineError(f"there is no connector {settings.connector!r}", "headrace or kafka")
    connector = _connector(pipeline, settings)
    rows = rows_of(spark, pipeline, connector)
    writers = [(pipeline.name, _writer(rows, pipeline, settings))]
    # The second query reads the same records again; only the first one shows the pipeline's lag.
    ungrouped = {name: each for name, each in connector.options.items() if name != "group"}
    letters = dead_letters(spark, pipeline, Connector(ungrouped, settings.connector))
    if letters is not None:
        checkpoint = letters_checkpoint(settings.checkpoint)
        writer = _to_topic(letters, {}, task_key(letters), DEAD_LETTER_TASKS, checkpoint, settings)
        writers.append((f"{pipeline.name}.letters", writer))
    started: list[StreamingQuery] = []
    try:
        for name, writer in writers:
            started.append(_triggered(writer, pipeline, settings).queryName(name).start())
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def letters_checkpoint(checkpoint: str) -> str:
    """The checkpoint of the query for dead letters."""
    return f"{checkpoint}-letters"


def group_of(pipeline: Pipeline) -> str:
    """The consumer group that shows a pipeline's progress."""
    return f"headrace.pipeline.{pipeline.name}.v{pipeline.version}"


def _connector(pipeline: Pipeline, settings: QuerySettings) -> Connector:
    options = _options(settings, "consumer")
    interval_s = _interval_s(pipeline, settings) or RATE_TRIGGER_SECONDS
    if settings.records_per_s is not None:
        options[MAX_OFFSETS] = str(records_per_trigger(settings.records_per_s, interval_s))
    elif MAX_OFFSETS.lower() not in map(str.lower, pipeline.options):
        options[MAX_OFFSETS] = str(records_per_batch(interval_s))
    if settings.connector == "headrace":
        options["group"] = group_of(pipeline)
    else:
        # As our own source does; by default it would read aborted records too.
        options.setdefault("kafka.isolation.level", "read_committed")
    return Connector(options, settings.connector)


def _options(settings: QuerySettings, kind: ClientKind) -> dict[str, str]:
    """The connector's options for those client settings that consumers, or producers, have."""
    fitting = settings_of(settings.client, kind)
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        **{f"kafka.{name}": value for name, value in fitting.items()},
    }


def _writer(rows: DataFrame, pipeline: Pipeline, settings: QuerySettings) -> DataStreamWriter:
    sink = pipeline.sink
    output = sink.output(pipeline.version)
    if isinstance(sink, Topic):
        made = records(rows, sink)
        writer = _to_topic(
            made,
            {**sink.options, "topic": output},
            # A row with a key reaches the same task whatever else it holds.
            "key" if sink.keys else task_key(made),
            pipeline.tasks,
            settings.checkpoint,
            settings,
            pipeline.output_mode,
        )
    else:
        write: ForeachBatch
        if isinstance(sink, Table):
            write = _reduced_to_latest(
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
        writer = write_batches(rows, write)
        writer = writer.option("checkpointLocation", settings.checkpoint)
        writer = writer.outputMode(pipeline.output_mode)
    return writer


def _to_topic(
    rows: DataFrame,
    given: Mapping[str, str],
    key: str | Column,
    tasks: int,
    checkpoint: str,
    settings: QuerySettings,
    output_mode: str = "append",
) -> DataStreamWriter:
    options = {**_options(settings, "producer"), **given}
    if settings.connector == "kafka":
        official = rows.writeStream.format("kafka").options(**options)
        return official.option("checkpointLocation", checkpoint).outputMode(output_mode)
    return exactly_once(
        rows,
        tasks=tasks,
        key=key,
        checkpoint=checkpoint,
        options=options,
        output_mode=output_mode,
        repin=settings.repin,
    )


def _triggered(
    writer: DataStreamWriter, pipeline: Pipeline, settings: QuerySettings
) -> DataStreamWriter:
    if settings.to_end and settings.records_per_s is None:
        return writer.trigger(availableNow=True)
    interval_s = _interval_s(pipeline, settings)
    if interval_s is None:
        return writer
    return writer.trigger(processingTime=f"{math.ceil(interval_s * 1000)} milliseconds")


def _interval_s(pipeline: Pipeline, settings: QuerySettings) -> float | None:
    """The interval between batches; None if they follow each other as fast as possible."""
    interval_s = trigger_seconds(pipeline.trigger) if pipeline.trigger else None
    if settings.records_per_s is None:
        return interval_s
    return rate_interval_s(settings.records_per_s, interval_s or RATE_TRIGGER_SECONDS)


def _reduced_to_latest(sink: Table, write: ForeachBatch) -> ForeachBatch:
    """Reduce each batch to one row for each key, the one with the highest `latest_by`."""
    column = sink.latest_by
    if column is None:
        return write

    def reduced(rows: DataFrame, batch: int) -> None:
        from pyspark.sql import functions as f

        # Within a struct a null sorts first; by itself, max_by would drop its row.
        newest = f.max_by(f.struct(*rows.columns), f.struct(column))
        keys = [f.col(key).alias(f"_by_{key}") for key in sink.keys]
        write(rows.groupBy(*keys).agg(newest.alias("_of")).select("_of.*").drop(column), batch)

    return reduced


def _partitions(sink: Folder, rows: DataFrame) -> list[str]:
    missing: list[Any] = [name for name in sink.partition_by if name not in rows.columns]
    if missing:
        raise PipelineError(
            f"partition_by: there is no column {missing[0]!r}",
            f"the rows have {', '.join(rows.columns)}",
        )
    return list(sink.partition_by)

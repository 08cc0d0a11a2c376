"""The writers of the sink: each task writes its rows and its marker in one transaction.

A task first fences earlier attempts under its name and reads its marker, then skips a batch that is
written already. This is exact if a rerun batch gives each task the rows it had before, which
`exactly_once` ensures.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.spark.errors import SinkError
from headrace.spark.sessions import freeze_loaded_objects
from headrace.spark.sink.markers import is_written, marker_name
from headrace.spark.sink.options import SinkOptions, check_columns, read_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"
COLUMNS = ("key", "value", "headers", "partition")

_log = logging.getLogger("headrace.spark")


@dataclass
class Written(WriterCommitMessage):
    """What a task did with its rows; `records` is 0 if the batch was written already."""

    task: int
    records: int
    is_repeat: bool


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of `df.write.format("headrace")`; SinkError if rows cannot be written so."""
    if overwrite:
        raise SinkError("a topic cannot be overwritten", '.mode("append")')
    read = read_options(options)
    check_columns(schema, read.topic)
    return BatchSink(read, read.id or f"batch-{uuid.uuid4()}")


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream.format("headrace")`; SinkError if rows cannot be written so."""
    read = read_options(options)
    check_columns(schema, read.topic)
    return StreamSink(read)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows of one batch; durable when it returns, visible a moment later."""
        context = _context()
        query, batch = (context.getLocalProperty(name) for name in (QUERY_PROPERTY, BATCH_PROPERTY))
        if query is None or batch is None:
            raise SinkError(
                "Spark did not give the ids of the query and the batch", "use Spark 4.1 or later"
            )
        return write_once(
            self._options, self._options.id or query, context.partitionId(), int(batch), iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: every task has committed its own rows."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What other tasks wrote stays; they skip the batch when it runs again."""
        _log_partial_write(messages, f"batch {batchId}")


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame once, also if a task is retried or a job with the same id is rerun."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        self._options = options
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows; durable when it returns, visible a moment later."""
        task, batch = _context().partitionId(), self._options.batch
        return write_once(self._options, self._name, task, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has committed its own rows; warns if all were written before."""
        done = [it for it in messages if isinstance(it, Written)]
        if any(it.is_repeat for it in done) and not any(it.records for it in done):
            _log.warning(
                "nothing was written: batch %d of id %s was written already",
                self._options.batch, self._name,
            )  # fmt: skip

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What other tasks wrote stays; with an id, running the same job again completes it."""
        _log_partial_write(messages, "the write")


def write_once(
    options: SinkOptions, query: str, task: int, batch: int, rows: Iterator[pa.RecordBatch]
) -> Written:
    """Write a task's rows of a batch, unless its marker says that they are written."""
    # Only tasks need the compiled loops; planners load this module as well.
    from headrace.spark.sink.transaction import SinkTransaction

    parts = by_topic(rows, options.topic)
    first = next(parts, None)
    if first is None:
        return Written(task, 0, is_repeat=False)
    name = marker_name(query, task, options.topic)
    with SinkTransaction(options.connection, name) as transaction:
        if is_written(transaction.marker(options.topic), batch):
            # The rows must be consumed, or the next task of this process would read them.
            for _ in parts:
                pass
            return Written(task, 0, is_repeat=True)
        for topic, part in chain([first], parts):
            transaction.send(topic, part)
        transaction.commit(first[0], batch)
        freeze_loaded_objects()
        return Written(task, transaction.sent, is_repeat=False)


def by_topic(batches: Iterable[Any], topic: str | None) -> Iterator[tuple[str, Any]]:
    """The rows of Arrow batches with their topics; rows of one topic keep their order.

    A given topic applies to all rows, as in the official connector.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = batch.select([name for name in COLUMNS if name in batch.schema.names])
        if topic is not None:
            yield topic, rows
            continue
        topics = batch.column("topic")
        if topics.null_count:
            raise SinkError("a row has no topic", "fill the column topic, or give option topic")
        import pyarrow.compute as pc

        for name in topics.unique().to_pylist():
            yield name, rows.filter(pc.equal(topics, name))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("the sink can only write within a Spark task")
    return context


def _log_partial_write(messages: list[WriterCommitMessage | None], what: str) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    _log.warning("%s failed after %d of %d tasks had written", what, len(done), len(messages))

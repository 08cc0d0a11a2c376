"""The sink: each task writes its rows and its marker in one transaction, and no batch twice.

A task fences whoever wrote before it under the same name, reads its marker, and passes over a batch
that is there already. So what counts is that a batch run again gives each task the rows it had:
`exactly_once` pins that.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.spark.errors import SinkError
from headrace.spark.sink.markers import is_written, marker_name
from headrace.spark.sink.options import SinkOptions, check_columns, read_options
from headrace.spark.sink.rows import by_topic
from headrace.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_PROPERTY = "streaming.sql.batchId"
QUERY_PROPERTY = "sql.streaming.queryId"

_log = logging.getLogger("headrace.spark")


@dataclass
class Written(WriterCommitMessage):
    """What a task did with its rows; `records` is 0 where the batch was there already."""

    task: int
    records: int
    is_repeat: bool


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of `df.write.format("headrace")`; SinkError if it cannot work."""
    if overwrite:
        raise SinkError("a topic cannot be overwritten", '.mode("append")')
    read = read_options(options)
    check_columns(schema, read.topic)
    return BatchSink(read, read.id or f"batch-{uuid.uuid4()}")


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream.format("headrace")`; SinkError if it cannot work."""
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
                "Spark did not say which query and batch this is", "use Spark 4.1 or later"
            )
        return write_once(
            self._options, self._options.id or query, context.partitionId(), int(batch), iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: every task has committed its own rows."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What other tasks wrote stays, and is passed over when the batch runs again."""
        _tell_partly(messages, f"batch {batchId}")


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame; a task that is tried again writes once, a job of the same id too."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        self._options = options
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows; durable when it returns, visible a moment later."""
        task, batch = _context().partitionId(), self._options.batch
        return write_once(self._options, self._name, task, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has committed its own rows; said is only if they were there before."""
        done = [it for it in messages if isinstance(it, Written)]
        if any(it.is_repeat for it in done) and not any(it.records for it in done):
            _log.warning(
                "nothing was written: batch %d of id %s was there already",
                self._options.batch, self._name,
            )  # fmt: skip

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What other tasks wrote stays; with an id, the same job again completes it."""
        _tell_partly(messages, "the write")


def write_once(
    options: SinkOptions, query: str, task: int, batch: int, rows: Iterator[pa.RecordBatch]
) -> Written:
    """Write a task's rows of a batch, unless its marker says that they are there."""
    # Only tasks need the compiled loops; Spark's planners load this module as well.
    from headrace.spark.sink.transaction import SinkTransaction

    parts = by_topic(rows, options.topic)
    first = next(parts, None)
    if first is None:
        return Written(task, 0, is_repeat=False)
    with SinkTransaction(options.settings, marker_name(query, task, options.topic)) as transaction:
        if is_written(transaction.marker(options.topic), batch):
            # Spark wants its rows taken, and the next task of this process begins after them.
            for _ in parts:
                pass
            return Written(task, 0, is_repeat=True)
        for topic, part in chain([first], parts):
            transaction.send(topic, part)
        transaction.commit(first[0], batch)
        settle()
        return Written(task, transaction.sent, is_repeat=False)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise SinkError("the sink writes only within a task of Spark")
    return context


def _tell_partly(messages: list[WriterCommitMessage | None], what: str) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    _log.warning("%s failed after %d of %d tasks had written", what, len(done), len(messages))

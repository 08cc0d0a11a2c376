"""`foreachBatch`: how Spark calls this process with each batch, and what the batch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PipelineError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ForeachBatch = Callable[["DataFrame", int], None]

QUERY_PROPERTY = "sql.streaming.queryId"
# select() accepts only descriptors below this.
DESCRIPTORS_MAX = 1024


def write_batches(rows: DataFrame, write: ForeachBatch) -> DataStreamWriter:
    """`foreachBatch`, or PipelineError where the stream would wait for its first batch forever."""
    check_callbacks(rows.sparkSession)
    return rows.writeStream.foreachBatch(write)


def check_callbacks(spark: Any) -> None:
    """Start the server that Spark calls back; PipelineError if it could not hear a call.

    Its thread waits with select(), and ends silently if the socket's descriptor is too high.
    """
    from pyspark import java_gateway

    gateway = spark.sparkContext._gateway
    start: Any = java_gateway.ensure_callback_server_started
    start(gateway)
    descriptor = gateway._callback_server.server_socket.fileno()
    if descriptor >= DESCRIPTORS_MAX:
        raise PipelineError(
            f"this process has more than {DESCRIPTORS_MAX:,} files open, so Spark cannot call it "
            "with a batch",
            "run the pipeline in a process of its own, or start its first stream before the rest",
        )


def query_of(rows: DataFrame) -> str:
    """The id of the running query, which its checkpoint keeps; SinkError outside of a query."""
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    if not query:
        raise SinkError(
            "these rows are not a batch of a streaming query",
            "pass the writer to writeStream.foreachBatch(...), or name it: name=...",
        )
    return str(query)


def skip_batch(rows: DataFrame) -> None:
    """Compute a batch that is already written, since Spark needs the state that it leaves."""
    rows.write.format("noop").mode("overwrite").save()

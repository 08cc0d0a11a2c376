"""Spark's way back to this process: how it calls a function with each batch of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# select() knows no descriptor from here on.
DESCRIPTORS_MAX = 1024


def by_batches(rows: DataFrame, write: Callable[[DataFrame, int], None]) -> DataStreamWriter:
    """`foreachBatch`, or an error where the stream would wait for its first batch for ever."""
    check_way_back(rows.sparkSession)
    return rows.writeStream.foreachBatch(write)


def check_way_back(spark: Any) -> None:
    """Open the way back if it is not open; PipelineError if nobody could come by it.

    The thread that waits at its end does so with select(), and ends in silence if it cannot.
    """
    from pyspark import java_gateway

    gateway = spark.sparkContext._gateway
    start: Any = java_gateway.ensure_callback_server_started
    start(gateway)
    descriptor = gateway._callback_server.server_socket.fileno()
    if descriptor >= DESCRIPTORS_MAX:
        raise PipelineError(
            f"this process has more than {DESCRIPTORS_MAX:,} files open, and Spark could not call "
            "it with a batch",
            "run the pipeline in a process of its own, or start its first stream before the rest",
        )

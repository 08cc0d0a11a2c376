"""Batches of a `foreachBatch` function: which query they are of, and those written already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_PROPERTY = "sql.streaming.queryId"


def query_of(rows: DataFrame) -> str:
    """The id of the running query, which its checkpoint keeps; SinkError outside of one."""
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    if not query:
        raise SinkError(
            "this is no batch of a streaming query",
            "give it to writeStream.foreachBatch(...), or name the writer: name=...",
        )
    return str(query)


def pass_over(rows: DataFrame) -> None:
    """Compute a batch that is written already: without it, Spark misses the state after it."""
    rows.write.format("noop").mode("overwrite").save()

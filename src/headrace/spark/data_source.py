"""`format("headrace")`: topics for Spark without a jar."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.spark.errors import OptionError
from headrace.spark.source.columns import SPARK_TYPES, schema
from headrace.spark.source.options import read_options

NAME = "headrace"
# What Spark runs for tasks unless configured.
DEFAULT_PYTHON = "python3"


class HeadraceSource(DataSource):
    """Reads and writes topics, with the options of Spark's own Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return NAME

    def schema(self) -> str:
        """The columns that the options ask for."""
        return schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        from headrace.spark.source.batch_reader import BatchReader

        return BatchReader(read_options(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        from headrace.spark.source.stream_reader import StreamReader

        return StreamReader(read_options(self.options), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch query."""
        from headrace.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query."""
        from headrace.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: Any) -> None:
    """Register `format("headrace")` in a session that has not discovered it by itself."""
    context = spark.sparkContext
    if context.master.startswith("local") and context.pythonExec == DEFAULT_PYTHON:
        # On one machine tasks run on this Python; by itself Spark takes the first on the path.
        context.pythonExec = sys.executable
    plain = context.environment
    # All streams of a session share this map, and each writes to it from its own thread. A HashMap
    # breaks under that, and then no stream can read its tasks any more.
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(plain)
    try:
        spark.dataSource.register(HeadraceSource)
    finally:
        context.environment = plain


def _columns(given: StructType) -> list[str]:
    """The names in a schema, the source's own or the user's; OptionError if a type is wrong."""
    for field in given.fields:
        kind = field.dataType.simpleString()
        if SPARK_TYPES.get(field.name) != kind:
            known = SPARK_TYPES.get(field.name)
            raise OptionError(
                f"schema: a topic has no column {field.name} of type {kind}",
                f"its type is {known}" if known else f"its columns are {', '.join(SPARK_TYPES)}",
            )
    return list(given.names)

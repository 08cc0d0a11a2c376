"""SQL tables for the rows of a DataFrame, with the nearest SQL type for each column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import types as spark
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Text,
)

from headrace.spark.errors import SinkError

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

BATCHES = "headrace_batches"


def batch_table() -> Table:
    """The table with the last batch of each writer in each table."""
    return Table(
        BATCHES,
        MetaData(),
        Column("writer", Text, primary_key=True),
        Column("target", Text, primary_key=True),
        Column("batch", BigInteger, nullable=False),
    )


def data_table(
    name: str, schema: spark.StructType, keys: Sequence[str], deletes: str | None
) -> Table:
    """A table for rows of this schema, without the column `deletes`."""
    names = [field.name for field in schema.fields]
    missing = [key for key in (*keys, *filter(None, [deletes])) if key not in names]
    if missing:
        raise SinkError(f"the rows have no column {missing[0]!r}", f"columns: {', '.join(names)}")
    columns = [
        Column(field.name, _sql_type(field.dataType), primary_key=field.name in keys)
        for field in schema.fields
        if field.name != deletes
    ]
    return Table(name, MetaData(), *columns)


def to_values(row: Row, table: Table) -> dict[str, Any]:
    """A row's values for the database; nested ones become JSON."""
    return {column.name: _value(row[column.name], column.type) for column in table.columns}


def _value(value: Any, kind: TypeEngine[Any]) -> Any:
    if isinstance(value, datetime) and isinstance(kind, DateTime) and kind.timezone:
        # Spark returns the local time of this process.
        return value.astimezone(UTC)
    if isinstance(value, Row):
        return json.dumps(value.asDict(recursive=True), default=str)
    if isinstance(value, list | dict):
        return json.dumps(_plain(value), default=str)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def _sql_type(kind: spark.DataType) -> TypeEngine[Any]:
    if isinstance(kind, spark.DecimalType):
        return Numeric(kind.precision, kind.scale)
    for fits, found in _TYPES:
        if isinstance(kind, fits):
            return found
    return Text()


_TYPES: tuple[tuple[Any, TypeEngine[Any]], ...] = (
    (spark.BooleanType, Boolean()),
    (spark.LongType, BigInteger()),
    ((spark.ByteType, spark.ShortType, spark.IntegerType), Integer()),
    (spark.DoubleType, Float(53)),
    (spark.FloatType, Float(24)),
    (spark.TimestampType, DateTime(timezone=True)),
    (spark.TimestampNTZType, DateTime()),
    (spark.DateType, Date()),
    (spark.BinaryType, LargeBinary()),
)

"""The format and schema of a record's value: JSON and msgpack here, Avro and Protobuf beside.

    Json("user STRING NOT NULL, at TIMESTAMP, amount DOUBLE")
    Msgpack("user STRING, amount DOUBLE")
    Avro(Path("order.avsc").read_text())
    Protobuf(orders_pb2.Order)

A value is undecodable if it does not fit its schema, or has a null where that says NOT NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

# Spark looks up the annotations of `ColumnDecoder.read` among this module's names.
import pyarrow as pa

from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Decode = Callable[[bytes], dict[str, Any]]

CAUSE_CHARS_MAX = 300
_BLANK = r"^\s*(null)?\s*$"


class ValueFormat(Protocol):
    """A format with a schema."""

    @property
    def schema(self) -> StructType:
        """The fields of a value."""
        ...

    def read(self, value: Column) -> Column:
        """A column `struct<fields: schema, cause: string>` of a column of bytes."""
        ...


class _DdlSchema:
    """The schema of a format that has none of its own."""

    def __init__(self, schema: str | StructType) -> None:
        self._schema = schema

    @property
    def schema(self) -> StructType:
        """The fields of a value; PipelineError if the text is not a schema."""
        from pyspark.sql.types import StructType

        if isinstance(self._schema, StructType):
            return self._schema
        try:
            found = StructType.fromDDL(self._schema)
        except Exception as problem:
            reason = str(problem).strip().splitlines()[0]
            raise PipelineError(
                f"{self._schema!r} is not a schema: {reason}", "such as user STRING, n BIGINT"
            ) from None
        assert isinstance(found, StructType)
        return found


class Json(_DdlSchema):
    """JSON objects; the schema is SQL text or a StructType."""

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`, parsed by Spark itself."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructField, StructType

        corrupt = "_undecodable"
        fields = [StructField(each.name, each.dataType) for each in self.schema.fields]
        wanted = StructType([*fields, StructField(corrupt, StringType())])
        text = value.cast("string")
        # Spark neither parses a blank text nor reports it, and fails for the text null.
        is_blank = text.rlike(_BLANK)
        parsed = f.from_json(
            f.when(~is_blank, text), wanted, {"columnNameOfCorruptRecord": corrupt}
        )
        names = [parsed[each.name].alias(each.name) for each in fields]
        is_bad = parsed[corrupt].isNotNull() | is_blank
        cause = f.when(is_bad, f.lit(f"not JSON of {self.schema.simpleString()}"))
        return f.struct(f.struct(*names).alias("fields"), cause.alias("cause"))


class Msgpack(_DdlSchema):
    """Msgpack maps; the schema is SQL text or a StructType."""

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`."""
        return decoded_in_python(value, self.schema, _unpack_map)


def _unpack_map(data: bytes) -> dict[str, Any]:
    import msgpack

    found = msgpack.unpackb(data, timestamp=3)
    if not isinstance(found, dict):
        raise ValueError(f"a map was expected, not {type(found).__name__}")
    return found


def decoded_in_python(value: Column, schema: StructType, decode: Decode) -> Column:
    """A column `struct<fields, cause>` of a column of bytes, by a function for each value."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import StringType, StructField, StructType

    fields = StructType([StructField(each.name, each.dataType) for each in schema.fields])
    result = StructType([StructField("fields", fields), StructField("cause", StringType())])
    make: Any = arrow_udf
    found: Column = make(ColumnDecoder(decode, fields).read, result)(value)
    return found


class ColumnDecoder:
    """Decodes a column of bytes row by row: a bad value has a cause and no fields."""

    def __init__(self, decode: Decode, fields: StructType) -> None:
        self._decode = decode
        self._fields = fields

    def read(self, values: pa.Array) -> pa.Array:
        """A column `struct<fields, cause>`; None stays None."""
        from pyspark.sql.pandas.types import to_arrow_type

        misfits = (pa.ArrowException, TypeError, ValueError, OverflowError)
        kind = to_arrow_type(self._fields, timezone="UTC")
        rows: list[dict[str, Any] | None] = []
        causes: list[str | None] = []
        for value in values.to_pylist():
            row, cause = self._decode_one(value)
            rows.append(row)
            causes.append(cause)
        try:
            fields = pa.array(rows, type=kind)
        except misfits:
            # Some value has another type than the schema: find out which.
            for index, row in enumerate(rows):
                try:
                    pa.array([row], type=kind)
                except misfits as problem:
                    rows[index], causes[index] = None, _cause(problem)
            fields = pa.array(rows, type=kind)
        return pa.StructArray.from_arrays(
            [fields, pa.array(causes, type=pa.string())], names=["fields", "cause"]
        )

    def _decode_one(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        if value is None:
            return None, None
        try:
            return self._decode(value), None
        except Exception as problem:
            return None, _cause(problem)


def _cause(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:CAUSE_CHARS_MAX]

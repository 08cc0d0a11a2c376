"""Avro records as values: the schema as a Spark type, and the decoder."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.values import decoded_in_python

if TYPE_CHECKING:
    from pyspark.sql import Column

_PLAIN: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "int": spark.IntegerType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "bytes": spark.BinaryType(),
    "fixed": spark.BinaryType(),
    "string": spark.StringType(),
    "enum": spark.StringType(),
}
_LOGICAL: dict[str, spark.DataType] = {
    "date": spark.DateType(),
    "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(),
    "uuid": spark.StringType(),
}


class Avro:
    """Avro records without a header; the schema is JSON text or a dict."""

    def __init__(self, schema: str | dict[str, Any]) -> None:
        self._avro = json.loads(schema) if isinstance(schema, str) else schema

    @property
    def schema(self) -> spark.StructType:
        """The fields of a value."""
        return struct_of(self._avro)

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`."""
        return decoded_in_python(value, self.schema, AvroDecoder(self._avro))


def struct_of(schema: dict[str, Any]) -> spark.StructType:
    """The Spark type of an Avro record; a field without null in its union is NOT NULL."""
    kind, _ = _of(schema, {})
    if not isinstance(kind, spark.StructType):
        raise PipelineError("the Avro schema is not a record", '{"type": "record", ...}')
    return kind


def _of(schema: Any, known: dict[str, spark.DataType]) -> tuple[spark.DataType, bool]:
    """A type, and whether it may be null; `known` has the named types."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise PipelineError(f"a union of {others} has no one Spark type", '["null", TYPE]')
        return _of(others[0], known)[0], "null" in schema
    if isinstance(schema, str):
        found = _PLAIN.get(schema) or known.get(schema)
        if found is None:
            raise PipelineError(
                f"unknown Avro type {schema!r}", "use one of Avro's own, or a name in the schema"
            )
        return found, False
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        found = spark.DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    elif logical in _LOGICAL:
        found = _LOGICAL[logical]
    elif kind == "record":
        found = spark.StructType()
        for field in schema["fields"]:
            each, nullable = _of(field["type"], known)
            found.add(field["name"], each, nullable)
    elif kind == "array":
        found = spark.ArrayType(*_of(schema["items"], known))
    elif kind == "map":
        each, nullable = _of(schema["values"], known)
        found = spark.MapType(spark.StringType(), each, nullable)
    else:
        found = _of(kind, known)[0]
    if "name" in schema:
        known[schema["name"]] = found
    return found, False


class AvroDecoder:
    """Decodes records; parses the schema in the worker, since a parsed one cannot be pickled."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._parsed: Any = None

    def __call__(self, data: bytes) -> dict[str, Any]:
        import fastavro

        if self._parsed is None:
            self._parsed = fastavro.parse_schema(self._schema)
        stream = BytesIO(data)
        found = fastavro.schemaless_reader(stream, self._parsed, None)
        if stream.read(1):
            raise ValueError("bytes are left over after the record")
        if not isinstance(found, dict):
            raise ValueError("the schema is not a record")
        return found

"""What the value of a record is: JSON, Avro, Protobuf or msgpack, of a schema.

    Json("user STRING NOT NULL, at TIMESTAMP, amount DOUBLE")
    Avro(Path("order.avsc").read_text())
    Protobuf(orders_pb2.Order)
    Msgpack("user STRING, amount DOUBLE")

A value that cannot be read, or has a null where the schema says NOT NULL, is undecodable.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from headrace.spark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Decode = Callable[[bytes], dict[str, Any]]

NOTHING = r"^\s*(null)?\s*$"


class ValueFormat(Protocol):
    """A format with a schema."""

    @property
    def schema(self) -> StructType:
        """What a value holds."""
        ...

    def read(self, value: Column) -> Column:
        """A column `struct<fields: schema, cause: string>` of a column of bytes."""
        ...


class Json:
    """JSON objects, of a schema in SQL's words or of a StructType."""

    def __init__(self, schema: str | StructType) -> None:
        self._schema = schema

    @property
    def schema(self) -> StructType:
        """What a value holds."""
        return _struct(self._schema)

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`, read by Spark itself."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StringType, StructField, StructType

        corrupt = "_undecodable"
        fields = [StructField(each.name, each.dataType) for each in self.schema.fields]
        wanted = StructType([*fields, StructField(corrupt, StringType())])
        text = value.cast("string")
        # Of a blank text Spark makes neither fields nor a complaint, and of null it fails.
        is_nothing = text.rlike(NOTHING)
        read = f.when(~is_nothing, text)
        parsed = f.from_json(read, wanted, {"columnNameOfCorruptRecord": corrupt})
        names = [parsed[each.name].alias(each.name) for each in fields]
        is_bad = parsed[corrupt].isNotNull() | is_nothing
        cause = f.when(is_bad, f.lit(f"not JSON of {self.schema.simpleString()}"))
        return f.struct(f.struct(*names).alias("fields"), cause.alias("cause"))


class Avro:
    """Avro records without a header, of a schema in JSON or as a dict."""

    def __init__(self, schema: str | dict[str, Any]) -> None:
        import json

        self._avro = json.loads(schema) if isinstance(schema, str) else schema

    @property
    def schema(self) -> StructType:
        """What a value holds."""
        from headrace.spark.pipelines.avro_types import struct_of

        return struct_of(self._avro)

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`."""
        return _in_python(value, self.schema, _AvroDecoder(self._avro))


class Protobuf:
    """Protobuf messages of a generated class."""

    def __init__(self, message: Any) -> None:
        if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "FromString"):
            raise PipelineError(f"{message!r} is no message class", "orders_pb2.Order")
        self._message = message

    @property
    def schema(self) -> StructType:
        """What a value holds."""
        from headrace.spark.pipelines.protobuf_types import struct_of

        return struct_of(self._message.DESCRIPTOR)

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`."""
        from headrace.spark.pipelines.protobuf_types import ProtobufDecoder

        return _in_python(value, self.schema, ProtobufDecoder.of(self._message))


class Msgpack:
    """Maps in msgpack, of a schema in SQL's words or of a StructType."""

    def __init__(self, schema: str | StructType) -> None:
        self._schema = schema

    @property
    def schema(self) -> StructType:
        """What a value holds."""
        return _struct(self._schema)

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`."""
        return _in_python(value, self.schema, _unpack)


class _AvroDecoder:
    """Reads Avro; parses the schema where it is used, as the parsed one does not travel well."""

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
            raise ValueError("the schema is not that of a record")
        return found


def _unpack(data: bytes) -> dict[str, Any]:
    import msgpack

    found = msgpack.unpackb(data, timestamp=3)
    if not isinstance(found, dict):
        raise ValueError(f"a map was expected, not {type(found).__name__}")
    return found


def _struct(given: str | StructType) -> StructType:
    from pyspark.sql.types import StructType

    if isinstance(given, StructType):
        return given
    try:
        found = StructType.fromDDL(given)
    except Exception as problem:
        reason = str(problem).strip().splitlines()[0]
        raise PipelineError(f"{given!r} is no schema: {reason}", "user STRING, n BIGINT") from None
    assert isinstance(found, StructType)
    return found


def _in_python(value: Column, schema: StructType, decode: Decode) -> Column:
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import StringType, StructField, StructType

    from headrace.spark.pipelines.value_columns import ColumnDecoder

    fields = StructType([StructField(each.name, each.dataType) for each in schema.fields])
    result = StructType([StructField("fields", fields), StructField("cause", StringType())])
    make: Any = arrow_udf
    found: Column = make(ColumnDecoder(decode, fields).read, result)(value)
    return found

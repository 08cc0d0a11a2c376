"""Protobuf messages as values: the message class as a Spark type, and the decoder."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as spark

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.values import decoded_in_python

if TYPE_CHECKING:
    from pyspark.sql import Column

DEPTH_MAX = 16
TIMESTAMP = "google.protobuf.Timestamp"

_PLAIN: dict[int, spark.DataType] = {
    FieldDescriptor.CPPTYPE_BOOL: spark.BooleanType(),
    FieldDescriptor.CPPTYPE_INT32: spark.IntegerType(),
    FieldDescriptor.CPPTYPE_UINT32: spark.LongType(),
    FieldDescriptor.CPPTYPE_INT64: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: spark.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: spark.FloatType(),
    FieldDescriptor.CPPTYPE_DOUBLE: spark.DoubleType(),
    FieldDescriptor.CPPTYPE_ENUM: spark.StringType(),
}


class Protobuf:
    """Protobuf messages of a generated class."""

    def __init__(self, message: Any) -> None:
        if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "FromString"):
            raise PipelineError(f"{message!r} is not a message class", "such as orders_pb2.Order")
        self._message = message

    @property
    def schema(self) -> spark.StructType:
        """The fields of a value."""
        return struct_of(self._message.DESCRIPTOR)

    def read(self, value: Column) -> Column:
        """A column `struct<fields, cause>`."""
        return decoded_in_python(value, self.schema, ProtobufDecoder.of(self._message))


def struct_of(message: Descriptor, depth: int = 0) -> spark.StructType:
    """The Spark type of a message; fields that may be absent may be null."""
    if depth > DEPTH_MAX:
        raise PipelineError(f"{message.full_name} contains itself", "Spark's types cannot")
    found = spark.StructType()
    for field in message.fields:
        found.add(field.name, _type_of(field, depth), True)
    return found


class ProtobufDecoder:
    """Decodes messages of one type; pickled as the type's descriptor."""

    def __init__(self, files: list[bytes], name: str) -> None:
        self._files = files
        self._name = name
        self._message: Any = None

    @classmethod
    def of(cls, message: Any) -> ProtobufDecoder:
        """The decoder of a generated class."""
        files: dict[str, bytes] = {}
        _collect(message.DESCRIPTOR.file, files)
        return cls(list(files.values()), message.DESCRIPTOR.full_name)

    def __call__(self, data: bytes) -> dict[str, Any]:
        if self._message is None:
            pool = descriptor_pool.DescriptorPool()
            for file in self._files:
                pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file))
            self._message = message_factory.GetMessageClass(pool.FindMessageTypeByName(self._name))
        return _values(self._message.FromString(data))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._files, self._name)


def _collect(file: Any, files: dict[str, bytes]) -> None:
    """Collect files, each after those that it depends on."""
    for dependency in file.dependencies:
        _collect(dependency, files)
    if file.name not in files:
        files[file.name] = file.serialized_pb


def _type_of(field: FieldDescriptor, depth: int) -> spark.DataType:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return spark.MapType(_type_of(key, depth + 1), _type_of(value, depth + 1))
    one = _type_of_one(field, depth)
    return spark.ArrayType(one) if field.is_repeated else one


def _type_of_one(field: FieldDescriptor, depth: int) -> spark.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return spark.TimestampType()
        return struct_of(field.message_type, depth + 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return spark.BinaryType()
    return _PLAIN.get(field.cpp_type, spark.StringType())


def _values(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: FieldDescriptor) -> Any:
    if field.is_repeated:
        found = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of = entry.fields_by_name["value"]
            return {key: _one(found[key], of) for key in found}
        return [_one(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(getattr(message, field.name), field)


def _one(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return value.ToDatetime(tzinfo=UTC)
        return _values(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    return value

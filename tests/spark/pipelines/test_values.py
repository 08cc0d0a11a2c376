"""Values in all four formats: what is good is typed, what is bad has a cause."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import fastavro
import msgpack
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from headrace.spark import Avro, Json, Msgpack, PipelineError, Protobuf
from headrace.spark.pipelines.avro import struct_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from headrace.spark.pipelines.values import ValueFormat

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def read(spark: SparkSession, value: ValueFormat, data: list[bytes | None]) -> list[Row]:
    frame = spark.createDataFrame([(each,) for each in data], "value BINARY").coalesce(1)
    return [row.read for row in frame.select(value.read(frame.value).alias("read")).collect()]


def test_json(spark: SparkSession) -> None:
    value = Json("user STRING NOT NULL, n BIGINT, at TIMESTAMP, tags ARRAY<STRING>")
    good = b'{"user": "a", "n": 1, "at": "2026-01-02T03:04:05Z", "tags": ["x"], "more": 1}'
    rows = read(spark, value, [good, b"{", b'{"n": "x"}', None, b'"text"'])
    assert rows[0].cause is None
    assert rows[0].fields.asDict() | {"at": 0} == {"user": "a", "n": 1, "at": 0, "tags": ["x"]}
    assert all(row.cause.startswith("not JSON of struct<user") for row in (rows[1], rows[2]))
    assert rows[3].cause is None
    assert rows[4].cause is not None


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
    ],
}  # fmt: skip


def test_avro(spark: SparkSession) -> None:
    row = {
        "id": 7, "name": None, "kind": "B", "at": AT, "day": date(2026, 1, 2),
        "lines": [{"n": 1}, {"n": 2}], "more": {"x": 0.5},
    }  # fmt: skip
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), row)
    good = buffer.getvalue()
    rows = read(spark, Avro(AVRO), [good, good[:-3], good + b"x", None])
    found = rows[0].fields.asDict(recursive=True)
    assert found.pop("at").replace(tzinfo=None) is not None
    row.pop("at")
    assert found == row
    assert [each.cause is None for each in rows] == [True, False, False, True]
    assert "left over" in rows[2].cause


def test_avro_schemas_that_spark_cannot_have_are_refused() -> None:
    assert struct_of(AVRO)["name"].nullable
    assert not struct_of(AVRO)["id"].nullable
    with pytest.raises(PipelineError, match="record"):
        struct_of({"type": "string"})
    field = {"name": "x", "type": ["int", "string"]}
    with pytest.raises(PipelineError, match="union"):
        struct_of({"type": "record", "name": "R", "fields": [field]})


def message_class() -> Any:
    """A message class as `protoc` would make it."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    enum = file.enum_type.add(name="Kind")
    enum.value.add(name="UNKNOWN", number=0)
    enum.value.add(name="RETAIL", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="n", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=one)
    order.field.add(name="kind", number=2, type=kinds.TYPE_ENUM, type_name=".shop.Kind", label=one)
    order.field.add(
        name="lines", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=many
    )
    order.field.add(
        name="best", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=one
    )
    order.field.add(name="raw", number=5, type=kinds.TYPE_BYTES, label=one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf(spark: SparkSession) -> None:
    order = message_class()
    good = order(id=5, kind=1, lines=[{"n": 1}, {"n": 2}], raw=b"\0").SerializeToString()
    rows = read(spark, Protobuf(order), [good, b"\xff\xff", None])
    assert rows[0].fields.asDict(recursive=True) == {
        "id": 5, "kind": "RETAIL", "lines": [{"n": 1}, {"n": 2}], "best": None, "raw": b"\0",
    }  # fmt: skip
    assert [each.cause is None for each in rows] == [True, False, True]
    with pytest.raises(PipelineError, match="is not a message class"):
        Protobuf("Order")


def test_msgpack(spark: SparkSession) -> None:
    value = Msgpack("user STRING, n BIGINT, at TIMESTAMP")
    good = msgpack.packb({"user": "a", "n": 1, "at": AT, "more": [1]}, datetime=True)
    wrong = msgpack.packb({"user": "b", "n": "many"})
    rows = read(spark, value, [good, wrong, msgpack.packb([1]), b"\xc1", None, good])
    assert (rows[0].fields.user, rows[0].fields.n) == ("a", 1)
    assert [each.cause is None for each in rows] == [True, False, False, False, True, True]
    assert "a map was expected, not list" in rows[2].cause

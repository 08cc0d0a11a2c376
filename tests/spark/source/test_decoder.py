"""The decoder into Arrow: compiled and plain, against what was written."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tests.spark.source.logs_made_up import Log, Row, logs

from headrace.client.wire.batch_reader import Fetched
from headrace.protocol.batch import (
    HEADER_BYTES,
    RECORD_COUNT_AT,
    build_batch,
    iter_headers,
    seal,
)
from headrace.protocol.errors import KafkaError
from headrace.protocol.records import Record
from headrace.spark.source.columns import ALWAYS, HEADERS, arrow_schema, schema
from headrace.spark.source.decoder import (
    ArrowBuilder,
    CompiledBuilder,
    best_builder,
    build_plainly,
    row_limited,
)
from headrace.spark.source.offset_ranges import OffsetRange
from headrace.spark.source.task import Unpacker

ALL = (*ALWAYS, HEADERS)
BUILDS = pytest.mark.parametrize("build", [CompiledBuilder(), build_plainly])


def rows(batches: Iterable[Any]) -> list[Row]:
    """Rows with timestamps in microseconds, as they are in the buffers."""
    found: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        table = pa.Table.from_batches([batch])
        if "timestamp" in table.column_names:
            place = table.column_names.index("timestamp")
            numbers = table.column("timestamp").cast(pa.int64())
            table = table.set_column(place, "timestamp", numbers)
        found += table.to_pylist()
    return found


def decode(
    build: ArrowBuilder,
    fetched: Fetched,
    columns: Sequence[str] = ALL,
    first: int = 0,
    end: int = 2**62,
    bytes_max: int = 1,
) -> list[Row]:
    unpacker = Unpacker(bytes_max)
    # One after the other: each is good until the next is made.
    return rows(
        build(chunk, columns, OffsetRange("clicks", 3, first, end))
        for chunk in unpacker.chunks(fetched)
    )


@BUILDS
@settings(deadline=None, max_examples=300)
@given(logs(), st.data())
def test_what_is_committed_within_a_range_comes_out(
    build: ArrowBuilder, log: Log, data: st.DataObject
) -> None:
    begin = log.fetched.batches[0][1].base_offset if log.data else 0
    first = data.draw(st.integers(begin, log.end))
    end = data.draw(st.integers(first, log.end + 1))
    columns = data.draw(st.lists(st.sampled_from(ALL), unique=True, min_size=1))
    bytes_max = data.draw(st.sampled_from([1, 200, 1 << 20]))
    expected = [
        {name: row[name] for name in columns}
        for row in log.rows
        if first <= int(str(row["offset"])) < end
    ]
    assert decode(build, log.fetched, columns, first, end, bytes_max) == expected


def outcome(build: ArrowBuilder, log: bytearray) -> list[Row] | str:
    fetched = Fetched(memoryview(log), list(iter_headers(log)), [], 0)
    try:
        return decode(build, fetched)
    except KafkaError:
        return "refused"


@settings(deadline=None)
@given(logs(), st.integers(1, 7))
def test_a_chunk_of_too_many_rows_is_cut(log: Log, rows_max: int) -> None:
    found: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark.source.decoder.ROWS_MAX", rows_max)
        for chunk in Unpacker().chunks(log.fetched):
            for low, high in row_limited(chunk, 0, 2**62):
                part = rows([build_plainly(chunk, ALL, OffsetRange("clicks", 3, low, high))])
                assert len(part) <= rows_max
                found += part
    assert found == log.rows


@settings(deadline=None, max_examples=500)
@given(logs(), st.data())
def test_what_is_malformed_is_refused_by_both_alike(log: Log, data: st.DataObject) -> None:
    """A flipped byte under a right CRC never gives other rows than the simple decoder has."""
    places = [(at, head) for at, head in log.fetched.batches if head.size > HEADER_BYTES]
    if not places:
        return
    position, header = data.draw(st.sampled_from(places))
    at = data.draw(st.integers(position + HEADER_BYTES, position + header.size - 1))
    log.data[at] ^= data.draw(st.integers(1, 255))
    seal(log.data, position)
    assert outcome(CompiledBuilder(), log.data) == outcome(build_plainly, log.data)


@BUILDS
def test_a_damaged_batch_is_refused(build: ArrowBuilder) -> None:
    data = build_batch([Record(0, 1, b"k", b"value")])
    data[-1] ^= 1
    with pytest.raises(KafkaError, match="CRC"):
        decode(build, Fetched(memoryview(data), list(iter_headers(data)), [], 0))


@BUILDS
@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_count_is_refused(build: ArrowBuilder, count: int) -> None:
    data = build_batch([Record(0, 1, b"k", b"value"), Record(1, 1, None, None)], last_offset=9)
    struct.pack_into(">i", data, RECORD_COUNT_AT, count)
    seal(data, 0)
    with pytest.raises(KafkaError):
        decode(build, Fetched(memoryview(data), list(iter_headers(data)), [], 0))


@BUILDS
def test_more_records_than_bytes_are_refused_before_room_is_made(build: ArrowBuilder) -> None:
    count = 2**31 - 1
    data = build_batch([Record(0, 1, b"k", b"value")], last_offset=count - 1)
    struct.pack_into(">i", data, RECORD_COUNT_AT, count)
    seal(data, 0)
    with pytest.raises(KafkaError, match=f"{count} records do not fit in 13 bytes"):
        decode(build, Fetched(memoryview(data), list(iter_headers(data)), [], 0))


@BUILDS
def test_no_header_is_null_as_in_the_official_connector(build: ArrowBuilder) -> None:
    data = build_batch([Record(0, 1, None, None), Record(1, 1, None, None, [("a", None)])])
    found = decode(build, Fetched(memoryview(data), list(iter_headers(data)), [], 0), [HEADERS])
    assert found == [{HEADERS: None}, {HEADERS: [{"key": "a", "value": None}]}]


def test_columns_are_those_that_spark_expects(spark: Any) -> None:
    columns = StructType.fromDDL(schema(ALL))
    assert isinstance(columns, StructType)
    assert arrow_schema(ALL) == to_arrow_schema(columns, timezone="UTC")


def test_the_compiled_decoder_is_the_one_in_use() -> None:
    assert isinstance(best_builder(), CompiledBuilder)

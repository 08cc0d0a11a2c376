"""Record batches from Arrow: rows put to their partitions and encoded, without a loop in Python.

Rows with headers, and machines without numba, take the plain way: a record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.client.partitioners import partition_of
from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    frame_records,
    iter_records,
    read_header,
    seal,
)
from headrace.protocol.compression import Codec, compress
from headrace.protocol.records import Record, encode_records
from headrace.spark.errors import SinkError

try:
    from headrace.spark.sink import record_kernel as kernel
except ImportError:
    kernel = None  # type: ignore[assignment]

# Below the broker's default of max.message.bytes, with room for the batch's header.
BATCH_BYTES = 900_000
RECORD_OVERHEAD_BYTES = 64
SEQUENCE_MASK = 0x7FFF_FFFF

_attributes = Struct(">h")
_producer = Struct(">qhi")


class Producing(NamedTuple):
    """Who produces, and how batches are packed."""

    producer_id: int
    epoch: int
    codec: Codec = Codec.NONE
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """The encoded records of one batch, and how many they are."""

    partition: int
    records: bytes
    count: int


class _Bytes(NamedTuple):
    """A column of bytes as its buffers."""

    data: NDArray[np.uint8]
    ends: NDArray[np.int32]
    nulls: NDArray[np.uint8]


def build(
    rows: Any, partitions: int, without_key: int, limit_bytes: int = BATCH_BYTES
) -> Iterator[Built]:
    """The batches of rows of one topic, in the order of the rows in each partition.

    None is above the limit, before it is packed, unless it has one record only.
    """
    names = rows.schema.names
    if kernel is None or "headers" in names:
        yield from _plainly(rows, partitions, without_key, limit_bytes)
        return
    values = _column(rows.column("value"))
    keys = _column(rows.column("key")) if "key" in names else _nothing(rows.num_rows)
    places = np.empty(rows.num_rows, np.int32)
    kernel.place(*keys, partitions, without_key, places)
    if "partition" in names:
        places = _named(rows.column("partition"), places, partitions)
    order = np.argsort(places, kind="stable").astype(np.int64, copy=False)
    counts = np.bincount(places, minlength=partitions)
    largest = int(np.diff(values.ends).max()) + int(np.diff(keys.ends).max())
    room = np.empty(max(limit_bytes, largest + RECORD_OVERHEAD_BYTES), np.uint8)
    begin = 0
    for partition in np.flatnonzero(counts).tolist():
        stop = begin + int(counts[partition])
        while begin < stop:
            after, size = kernel.encode(order, begin, stop, limit_bytes, *keys, *values, room)
            yield Built(partition, room[:size].tobytes(), after - begin)
            begin = after


def finish(built: Built, who: Producing, sequence: int, timestamp_ms: int) -> bytearray:
    """The batch as it is sent: packed, in the producer's name, sealed."""
    packed = compress(who.codec, built.records, who.level)
    batch = frame_records(bytes(packed), built.count, timestamp_ms)
    _attributes.pack_into(batch, ATTRIBUTES_AT, TRANSACTIONAL_BIT | who.codec)
    _producer.pack_into(batch, PRODUCER_ID_AT, who.producer_id, who.epoch, sequence)
    seal(batch, 0)
    return batch


def halves(batch: bytearray, who: Producing) -> list[bytearray]:
    """A batch as two that have its numbers; one of a single record stays one."""
    header = read_header(batch)
    records = list(iter_records(batch))
    middle = (len(records) + 1) // 2
    made: list[bytearray] = []
    for first, part in ((0, records[:middle]), (middle, records[middle:])):
        if part:
            renumbered = [
                Record(number, 0, it.key, it.value, it.headers) for number, it in enumerate(part)
            ]
            sequence = (header.base_sequence + first) & SEQUENCE_MASK
            built = _plain_batch(0, renumbered)
            made.append(finish(built, who, sequence, header.base_timestamp))
    return made


def _column(column: Any) -> _Bytes:
    """The buffers of a column of text or bytes; not copied unless its numbers are too wide."""
    column = column.cast(pa.binary())
    nulls = (
        np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.uint8)
        if column.null_count
        else np.zeros(len(column), np.uint8)
    )
    _, ends, data = column.buffers()
    first = column.offset
    found = np.frombuffer(ends, np.int32)[first : first + len(column) + 1]
    return _Bytes(_readonly(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)),
                  _readonly(found), nulls)  # fmt: skip


def _nothing(rows: int) -> _Bytes:
    return _Bytes(
        _readonly(np.empty(0, np.uint8)),
        _readonly(np.zeros(rows + 1, np.int32)),
        np.ones(rows, np.uint8),
    )


def _readonly(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _named(column: Any, places: NDArray[np.int32], partitions: int) -> NDArray[np.int32]:
    """The partitions that rows name themselves; the others stay where their keys belong."""
    named = column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    if len(named) and int(named.max()) >= partitions:
        raise SinkError(
            f"a row names partition {int(named.max())}", f"there are 0 to {partitions - 1}"
        )
    return np.where(named < 0, places, named).astype(np.int32)


def _plainly(rows: Any, partitions: int, without_key: int, limit_bytes: int) -> Iterator[Built]:
    columns: Mapping[str, list[Any]] = rows.to_pydict()
    empty: list[Any] = [None] * rows.num_rows
    parts: dict[int, list[Record]] = {}
    sizes: dict[int, int] = {}
    for key, value, named, headers in zip(
        columns.get("key", empty),
        columns["value"],
        columns.get("partition", empty),
        columns.get("headers", empty),
        strict=True,
    ):
        key, value = _plain_bytes(key), _plain_bytes(value)
        partition = without_key if key is None else partition_of(key, partitions)
        if named is not None and named >= 0:
            if named >= partitions:
                raise SinkError(
                    f"a row names partition {named}", f"there are 0 to {partitions - 1}"
                )
            partition = named
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) * 4 + len(content or b"") for name, content in pairs)
        part = parts.setdefault(partition, [])
        if part and sizes[partition] + size > limit_bytes:
            yield _plain_batch(partition, part)
            part = parts[partition] = []
            sizes[partition] = 0
        part.append(Record(len(part), 0, key, value, pairs))
        sizes[partition] = sizes.get(partition, 0) + size
    for partition, part in parts.items():
        yield _plain_batch(partition, part)


def _plain_batch(partition: int, part: list[Record]) -> Built:
    body, count = encode_records(part, 0, 0)
    return Built(partition, bytes(body), count)


def _plain_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

"""Record batches from Arrow: rows are assigned to partitions and encoded by compiled loops.

Rows with headers, and all rows where numba is not installed, are encoded one at a time instead.
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
    from headrace.spark.sink import encode_kernel as kernel
except ImportError:
    kernel = None  # type: ignore[assignment]

# Below the broker's default of max.message.bytes, with room for the batch's header.
BATCH_BYTES = 900_000
RECORD_OVERHEAD_BYTES = 64
SEQUENCE_MASK = 0x7FFF_FFFF

_attributes = Struct(">h")
_producer = Struct(">qhi")


class ProducerId(NamedTuple):
    """The id and epoch of a producer, and how it compresses batches."""

    id: int
    epoch: int
    codec: Codec = Codec.NONE
    level: int | None = None


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """The encoded records of one batch, and their number."""

    partition: int
    records: bytes
    count: int


class _Bytes(NamedTuple):
    """A column of bytes as its buffers."""

    data: NDArray[np.uint8]
    ends: NDArray[np.int32]
    nulls: NDArray[np.uint8]


def encode(
    rows: Any, partitions: int, keyless_partition: int, bytes_max: int = BATCH_BYTES
) -> Iterator[EncodedRecords]:
    """The rows of one topic as batches, in the order of the rows in each partition.

    Before compression none is above `bytes_max`, except for a single record that is larger.
    """
    names = rows.schema.names
    if kernel is None or "headers" in names:
        yield from _encode_plainly(rows, partitions, keyless_partition, bytes_max)
        return
    values = _buffers(rows.column("value"))
    keys = _buffers(rows.column("key")) if "key" in names else _null_column(rows.num_rows)
    chosen = np.empty(rows.num_rows, np.int32)
    kernel.choose_partitions(*keys, partitions, keyless_partition, chosen)
    if "partition" in names:
        chosen = _with_named(rows.column("partition"), chosen, partitions)
    order = np.argsort(chosen, kind="stable").astype(np.int64, copy=False)
    counts = np.bincount(chosen, minlength=partitions)
    largest = int(np.diff(values.ends).max()) + int(np.diff(keys.ends).max())
    buffer = np.empty(max(bytes_max, largest + RECORD_OVERHEAD_BYTES), np.uint8)
    begin = 0
    for partition in np.flatnonzero(counts).tolist():
        stop = begin + int(counts[partition])
        while begin < stop:
            after, size = kernel.encode(order, begin, stop, bytes_max, *keys, *values, buffer)
            yield EncodedRecords(partition, buffer[:size].tobytes(), after - begin)
            begin = after


def seal_batch(
    encoded: EncodedRecords, producer: ProducerId, sequence: int, timestamp_ms: int
) -> bytearray:
    """The batch as it is sent: compressed, with the producer's id, a sequence number and a CRC."""
    packed = compress(producer.codec, encoded.records, producer.level)
    batch = frame_records(bytes(packed), encoded.count, timestamp_ms)
    _attributes.pack_into(batch, ATTRIBUTES_AT, TRANSACTIONAL_BIT | producer.codec)
    _producer.pack_into(batch, PRODUCER_ID_AT, producer.id, producer.epoch, sequence)
    seal(batch, 0)
    return batch


def halves(batch: bytearray, producer: ProducerId) -> list[bytearray]:
    """Two batches with the same sequence numbers as one; a single record stays one batch."""
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
            encoded = _encode_records(0, renumbered)
            made.append(seal_batch(encoded, producer, sequence, header.base_timestamp))
    return made


def _buffers(column: Any) -> _Bytes:
    """The buffers of a column of text or bytes; copied only if its offsets are 64 bits wide."""
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


def _null_column(rows: int) -> _Bytes:
    return _Bytes(
        _readonly(np.empty(0, np.uint8)),
        _readonly(np.zeros(rows + 1, np.int32)),
        np.ones(rows, np.uint8),
    )


def _readonly(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _with_named(column: Any, chosen: NDArray[np.int32], partitions: int) -> NDArray[np.int32]:
    """The partitions that rows name themselves, and for the other rows those of their keys."""
    named = column.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    if len(named) and int(named.max()) >= partitions:
        raise _no_such_partition(int(named.max()), partitions)
    return np.where(named < 0, chosen, named).astype(np.int32)


def _no_such_partition(named: int, partitions: int) -> SinkError:
    return SinkError(f"a row names partition {named}", f"the topic has 0 to {partitions - 1}")


def _encode_plainly(
    rows: Any, partitions: int, keyless_partition: int, bytes_max: int
) -> Iterator[EncodedRecords]:
    columns: Mapping[str, list[Any]] = rows.to_pydict()
    empty: list[Any] = [None] * rows.num_rows
    batches: dict[int, list[Record]] = {}
    sizes: dict[int, int] = {}
    for key, value, named, headers in zip(
        columns.get("key", empty),
        columns["value"],
        columns.get("partition", empty),
        columns.get("headers", empty),
        strict=True,
    ):
        key, value = _to_bytes(key), _to_bytes(value)
        partition = keyless_partition if key is None else partition_of(key, partitions)
        if named is not None and named >= 0:
            if named >= partitions:
                raise _no_such_partition(named, partitions)
            partition = named
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) * 4 + len(content or b"") for name, content in pairs)
        records = batches.setdefault(partition, [])
        if records and sizes[partition] + size > bytes_max:
            yield _encode_records(partition, records)
            records = batches[partition] = []
            sizes[partition] = 0
        records.append(Record(len(records), 0, key, value, pairs))
        sizes[partition] = sizes.get(partition, 0) + size
    for partition, records in batches.items():
        yield _encode_records(partition, records)


def _encode_records(partition: int, records: list[Record]) -> EncodedRecords:
    body, count = encode_records(records, 0, 0)
    return EncodedRecords(partition, bytes(body), count)


def _to_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

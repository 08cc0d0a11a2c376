"""Record batches into Arrow record batches, by the compiled loop or by a plain one.

The compiled builder allocates for the most rows that can come and then passes over the bytes once.
It reuses its buffers for the next batch: fresh memory would cost more than the decoding. Where
numba is not installed, the plain builder does the same with the decoder of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.protocol.batch import InvalidBatch
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.protocol.records import Record, decode_records
from headrace.spark.source.columns import ARROW_TYPES, HEADERS, arrow_schema
from headrace.spark.source.offset_ranges import OffsetRange

try:
    from headrace.spark.source import decode_kernel as kernel
except ImportError:
    kernel = None  # type: ignore[assignment]

ROWS_MAX = 4_000_000
"""Of an Arrow batch: the topic's name, repeated in this many rows, stays below Arrow's 2 GB."""

BatchSpan = tuple[int, int, int, int, int, int, int, int]
"""Where a batch's records are in a buffer, and its header; the fields are in decode_kernel.py."""


class UnpackedBatches(NamedTuple):
    """A buffer of unpacked bytes, and the record batches in it."""

    buffer: Buffer
    spans: list[BatchSpan]

    @property
    def rows_max(self) -> int:
        """The most rows that can come of it."""
        return sum(span[2] for span in self.spans)

    @property
    def bytes_max(self) -> int:
        """The most bytes that can come of it."""
        return sum(span[1] - span[0] for span in self.spans)


class ArrowBuilder(Protocol):
    """Makes an Arrow record batch of those records of a chunk that are within a range.

    It may be valid only until the next is made.
    """

    def __call__(
        self, chunk: Sequence[UnpackedBatches], columns: Sequence[str], wanted: OffsetRange
    ) -> Any: ...


def best_builder() -> ArrowBuilder:
    """The compiled one where numba is installed, else the plain one."""
    return build_plainly if kernel is None else CompiledBuilder()


def row_limited(
    chunk: Sequence[UnpackedBatches], first: int, end: int
) -> Iterator[tuple[int, int]]:
    """[first, end) of a chunk, cut so that no piece has more rows than an Arrow batch may have."""
    if sum(each.rows_max for each in chunk) <= ROWS_MAX:
        yield first, end
        return
    spans = [span for each in chunk for span in each.spans]
    low = max(first, min(span[3] for span in spans))
    high = min(end, max(span[3] + span[4] for span in spans) + 1)
    for start in range(low, high, ROWS_MAX):
        yield start, min(start + ROWS_MAX, high)


class CompiledBuilder:
    """Builds with the compiled loop; each Arrow batch is valid until the next is made."""

    def __init__(self) -> None:
        self._bytes = {name: _BytesBuffers() for name in ("key", "value")}
        self._lists, self._names, self._contents = (_BytesBuffers() for _ in range(3))
        self._numbers: dict[str, NDArray[Any]] = {
            "offset": np.empty(0, np.int64),
            "timestamp": np.empty(0, np.int64),
            "timestampType": np.empty(0, np.int32),
        }
        self._wanted = {
            "key": kernel.KEY,
            "value": kernel.VALUE,
            HEADERS: kernel.HEADER,
            "offset": kernel.OFFSET,
            "timestamp": kernel.TIME,
            "timestampType": kernel.KIND,
        }

    def __call__(
        self, chunk: Sequence[UnpackedBatches], columns: Sequence[str], wanted: OffsetRange
    ) -> Any:
        """An Arrow record batch of the records whose offsets are wanted."""
        rows_max = sum(each.rows_max for each in chunk)
        self._reserve(columns, rows_max, sum(each.bytes_max for each in chunk))
        keys, values = self._bytes["key"], self._bytes["value"]
        lists, names, contents = self._lists, self._names, self._contents
        bits = sum(self._wanted.get(name, 0) for name in columns)
        counters = np.zeros(kernel.COUNTERS, np.int64)
        for each in chunk:
            kernel.decode(
                np.frombuffer(each.buffer, np.uint8), np.array(each.spans, np.int64),
                wanted.start, wanted.end, bits, counters,
                *self._numbers.values(),
                keys.ends, keys.data, keys.bits,
                values.ends, values.data, values.bits,
                lists.ends, lists.bits, names.ends, names.data,
                contents.ends, contents.data, contents.bits,
            )  # fmt: skip
            if counters[kernel.PROBLEM]:
                raise InvalidBatch(kernel.PROBLEMS[counters[kernel.PROBLEM]])
        counted = [int(count) for count in counters]
        return pa.RecordBatch.from_arrays(
            [self._column(name, counted, wanted) for name in columns],
            schema=arrow_schema(columns),
        )

    def _reserve(self, columns: Sequence[str], rows_max: int, bytes_max: int) -> None:
        """Make room for the columns that are wanted; nothing is written to the others."""
        for name in columns:
            if name in self._bytes:
                self._bytes[name].reserve(rows_max, bytes_max)
            elif name in self._numbers:
                self._numbers[name] = _grown(self._numbers[name], rows_max)
            elif name == HEADERS:
                # A header takes at least two bytes. Pages that are never written cost no memory.
                self._lists.reserve(rows_max, 0)
                self._names.reserve(bytes_max // 2, bytes_max)
                self._contents.reserve(bytes_max // 2, bytes_max)

    def _column(self, name: str, counted: list[int], wanted: OffsetRange) -> Any:
        kind, rows = ARROW_TYPES[name], counted[kernel.ROWS]
        if name in self._numbers:
            return _numbers(kind, self._numbers[name][:rows])
        match name:
            case "key":
                size_bytes, nulls = counted[kernel.KEY_BYTES], counted[kernel.NULL_KEYS]
                return self._bytes[name].array(kind, rows, size_bytes, nulls)
            case "value":
                size_bytes, nulls = counted[kernel.VALUE_BYTES], counted[kernel.NULL_VALUES]
                return self._bytes[name].array(kind, rows, size_bytes, nulls)
            case "topic":
                return _repeated(wanted.topic, rows)
            case "partition":
                return _numbers(kind, np.full(rows, wanted.partition, np.int32))
        return self._headers(kind, rows, counted)

    def _headers(self, kind: Any, rows: int, counted: list[int]) -> Any:
        count = counted[kernel.HEADERS]
        names = self._names.array(pa.string(), count, counted[kernel.NAME_BYTES], 0)
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidBatch(f"a header's name is not UTF-8: {error}") from error
        contents = self._contents.array(
            pa.binary(), count, counted[kernel.CONTENT_BYTES], counted[kernel.NULL_CONTENTS]
        )
        pairs = pa.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
        nulls = counted[kernel.NULL_HEADERS]
        bits = pa.py_buffer(self._lists.bits[: (rows + 7) // 8]) if nulls else None
        ends = pa.py_buffer(self._lists.ends[: rows + 1])
        return pa.Array.from_buffers(kind, rows, [bits, ends], nulls, children=[pairs])


class _BytesBuffers:
    """The buffers of a column of bytes: where each value ends, which are null, and the bytes."""

    def __init__(self) -> None:
        self.ends: NDArray[np.int32] = np.empty(0, np.int32)
        self.data: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.bits: NDArray[np.uint8] = np.empty(0, np.uint8)

    def reserve(self, rows_max: int, bytes_max: int) -> None:
        """Grow to these sizes where smaller, and mark every row as not null."""
        self.ends = _grown(self.ends, rows_max + 1)
        self.data = _grown(self.data, bytes_max)
        self.bits = _grown(self.bits, rows_max // 8 + 1)
        self.ends[0] = 0
        self.bits[: rows_max // 8 + 1] = 255

    def array(self, kind: Any, rows: int, size_bytes: int, nulls: int) -> Any:
        """An Arrow array over the part of the buffers that is in use."""
        bits = pa.py_buffer(self.bits[: (rows + 7) // 8]) if nulls else None
        ends, data = pa.py_buffer(self.ends[: rows + 1]), pa.py_buffer(self.data[:size_bytes])
        return pa.Array.from_buffers(kind, rows, [bits, ends, data], nulls)


def _grown(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The array, or a larger one without its contents."""
    return array if len(array) >= count else np.empty(count + count // 4, array.dtype)


def _numbers(kind: Any, numbers: NDArray[Any]) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)], 0)


def _repeated(text: str, rows: int) -> Any:
    data = np.frombuffer(text.encode(), np.uint8)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.tile(data, rows))]
    return pa.Array.from_buffers(pa.string(), rows, buffers, 0)


def build_plainly(
    chunk: Sequence[UnpackedBatches], columns: Sequence[str], wanted: OffsetRange
) -> Any:
    """An Arrow record batch by the decoder of the protocol: slow, and right on every machine."""
    rows = [
        _row(record, wanted, is_append)
        for each in chunk
        for span in each.spans
        for record, is_append in _records(each.buffer, span, wanted.end)
        if record.offset >= wanted.start
    ]
    return pa.RecordBatch.from_pylist(
        [{name: row[name] for name in columns} for row in rows], schema=arrow_schema(columns)
    )


def _records(buffer: Buffer, span: BatchSpan, end: int) -> list[tuple[Record, int]]:
    start, stop, count, base_offset, last_delta, base_ms, append_ms, is_append = span
    records: list[tuple[Record, int]] = []
    time_ms = append_ms if is_append else None
    try:
        for record in decode_records(
            bytes(buffer[start:stop]), count, base_offset, base_ms, time_ms
        ):
            if record.offset - base_offset > last_delta:
                raise ProtocolError("a record's offset is beyond its batch")
            if record.offset >= end:
                break
            records.append((record, is_append))
    except ProtocolError as error:
        raise InvalidBatch(str(error)) from error
    return records


def _row(record: Record, wanted: OffsetRange, is_append: int) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": wanted.topic,
        "partition": wanted.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": is_append,
        # As in the official connector, a record without headers has null, not an empty list.
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }

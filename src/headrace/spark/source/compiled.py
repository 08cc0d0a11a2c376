"""Arrow batches by the compiled loop: room for all that can come, then one pass over the bytes.

The room is used again for the next batch: fresh memory costs more than the decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.protocol.batch import InvalidBatch
from headrace.spark.source import kernel
from headrace.spark.source.columns import ARROW_TYPES, HEADERS, arrow_schema
from headrace.spark.source.decoder import Part

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]

WANTED = {
    "key": kernel.KEY,
    "value": kernel.VALUE,
    HEADERS: kernel.HEADER,
    "offset": kernel.OFFSET,
    "timestamp": kernel.TIME,
    "timestampType": kernel.KIND,
}


class _Room:
    """Buffers of a column of bytes: where each ends, which are null, and the bytes."""

    def __init__(self) -> None:
        self.ends: Ints = np.empty(0, np.int32)
        self.data: Bytes = np.empty(0, np.uint8)
        self.bits: Bytes = np.empty(0, np.uint8)

    def fit(self, rows_max: int, bytes_max: int) -> None:
        """Make room where there is too little; nothing is null."""
        self.ends = _fit(self.ends, rows_max + 1)
        self.data = _fit(self.data, bytes_max)
        self.bits = _fit(self.bits, rows_max // 8 + 1)
        self.ends[0] = 0
        self.bits[: rows_max // 8 + 1] = 255

    def array(self, kind: Any, rows: int, size_bytes: int, nulls: int) -> Any:
        """The column, of as much of the room as is in use."""
        bits = pa.py_buffer(self.bits[: (rows + 7) // 8]) if nulls else None
        ends, data = pa.py_buffer(self.ends[: rows + 1]), pa.py_buffer(self.data[:size_bytes])
        return pa.Array.from_buffers(kind, rows, [bits, ends, data], nulls)


class Builder:
    """Makes Arrow record batches, each good until the next is made."""

    def __init__(self) -> None:
        self._keys, self._values = _Room(), _Room()
        self._lists, self._names, self._contents = _Room(), _Room(), _Room()
        self._offsets, self._times = np.empty(0, np.int64), np.empty(0, np.int64)
        self._kinds = np.empty(0, np.int32)

    def __call__(
        self,
        parts: Sequence[Part],
        columns: Sequence[str],
        topic: str,
        partition: int,
        first: int,
        end: int,
    ) -> Any:
        """An Arrow record batch of the records whose offsets are in [first, end)."""
        self._fit(columns, sum(it.rows_max for it in parts), sum(it.size_bytes for it in parts))
        keys, values = self._keys, self._values
        lists, names, contents = self._lists, self._names, self._contents
        wanted = sum(WANTED.get(name, 0) for name in columns)
        counters = np.zeros(kernel.COUNTERS, np.int64)
        for part in parts:
            kernel.decode(
                np.frombuffer(part.buffer, np.uint8), np.array(part.segments, np.int64),
                first, end, wanted, counters,
                self._offsets, self._times, self._kinds,
                keys.ends, keys.data, keys.bits,
                values.ends, values.data, values.bits,
                lists.ends, lists.bits, names.ends, names.data,
                contents.ends, contents.data, contents.bits,
            )  # fmt: skip
            if counters[kernel.PROBLEM]:
                raise InvalidBatch(kernel.PROBLEMS[counters[kernel.PROBLEM]])
        counted = [int(count) for count in counters]
        return pa.RecordBatch.from_arrays(
            [self._column(name, counted, topic, partition) for name in columns],
            schema=arrow_schema(columns),
        )

    def _fit(self, columns: Sequence[str], rows_max: int, bytes_max: int) -> None:
        """Make room for the columns that are wanted; nothing is written to the others."""
        if "key" in columns:
            self._keys.fit(rows_max, bytes_max)
        if "value" in columns:
            self._values.fit(rows_max, bytes_max)
        if HEADERS in columns:
            # A header takes two bytes at least. Room that nothing is written to costs no memory.
            self._lists.fit(rows_max, 0)
            self._names.fit(bytes_max // 2, bytes_max)
            self._contents.fit(bytes_max // 2, bytes_max)
        if "offset" in columns:
            self._offsets = _fit(self._offsets, rows_max)
        if "timestamp" in columns:
            self._times = _fit(self._times, rows_max)
        if "timestampType" in columns:
            self._kinds = _fit(self._kinds, rows_max)

    def _column(self, name: str, counted: list[int], topic: str, partition: int) -> Any:
        kind, rows = ARROW_TYPES[name], counted[kernel.ROWS]
        match name:
            case "key":
                size_bytes, nulls = counted[kernel.KEY_BYTES], counted[kernel.NULL_KEYS]
                return self._keys.array(kind, rows, size_bytes, nulls)
            case "value":
                size_bytes, nulls = counted[kernel.VALUE_BYTES], counted[kernel.NULL_VALUES]
                return self._values.array(kind, rows, size_bytes, nulls)
            case "topic":
                return _repeated(topic, rows)
            case "partition":
                return _numbers(kind, np.full(rows, partition, np.int32))
            case "offset":
                return _numbers(kind, self._offsets[:rows])
            case "timestamp":
                return _numbers(kind, self._times[:rows])
            case "timestampType":
                return _numbers(kind, self._kinds[:rows])
        return _headers(kind, rows, counted, self._lists, self._names, self._contents)


def _fit(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The array, or a larger one without its contents."""
    return array if len(array) >= count else np.empty(count + count // 4, array.dtype)


def _numbers(kind: Any, numbers: NDArray[Any]) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)], 0)


def _repeated(text: str, rows: int) -> Any:
    data = np.frombuffer(text.encode(), np.uint8)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.tile(data, rows))]
    return pa.Array.from_buffers(pa.string(), rows, buffers, 0)


def _headers(
    kind: Any, rows: int, counted: list[int], lists: _Room, names: _Room, contents: _Room
) -> Any:
    count = counted[kernel.HEADERS]
    name_column = names.array(pa.string(), count, counted[kernel.NAME_BYTES], 0)
    try:
        name_column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidBatch(f"a header's name is not UTF-8: {error}") from error
    pairs = pa.StructArray.from_arrays(
        [
            name_column,
            contents.array(
                pa.binary(),
                count,
                counted[kernel.CONTENT_BYTES],
                counted[kernel.NULL_CONTENTS],
            ),
        ],
        fields=list(kind.value_type),
    )
    nulls = counted[kernel.NULL_HEADERS]
    bits = pa.py_buffer(lists.bits[: (rows + 7) // 8]) if nulls else None
    ends = pa.py_buffer(lists.ends[: rows + 1])
    return pa.Array.from_buffers(kind, rows, [bits, ends], nulls, children=[pairs])

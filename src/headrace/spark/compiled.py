"""Arrow batches by the compiled loop: room for all that can come, then one pass over the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.protocol.batch import InvalidBatch
from headrace.spark import kernel
from headrace.spark.columns import ARROW_TYPES, HEADERS, arrow_schema
from headrace.spark.decoder import Part

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]

NO_BYTES = np.empty(0, np.uint8)
NO_INTS = np.empty(0, np.int32)


class _Room:
    """Buffers of a column of bytes: where each ends, which are null, and the bytes."""

    def __init__(self, is_wanted: bool, rows_max: int, bytes_max: int) -> None:
        self.ends: Ints = np.empty(rows_max + 1, np.int32) if is_wanted else NO_INTS
        self.data: Bytes = np.empty(bytes_max, np.uint8) if is_wanted else NO_BYTES
        self.bits: Bytes = np.full(rows_max // 8 + 1, 255, np.uint8) if is_wanted else NO_BYTES
        if is_wanted:
            self.ends[0] = 0

    def array(self, kind: Any, rows: int, size_bytes: int, nulls: int) -> Any:
        """The column, of as much of the room as is in use."""
        bits = pa.py_buffer(self.bits[: (rows + 7) // 8]) if nulls else None
        ends, data = pa.py_buffer(self.ends[: rows + 1]), pa.py_buffer(self.data[:size_bytes])
        return pa.Array.from_buffers(kind, rows, [bits, ends, data], nulls)


def build(
    parts: Sequence[Part],
    columns: Sequence[str],
    topic: str,
    partition: int,
    first: int,
    end: int,
) -> Any:
    """An Arrow record batch of the records whose offsets are in [first, end)."""
    rows_max = sum(part.rows_max for part in parts)
    bytes_max = sum(part.size_bytes for part in parts)
    has_headers = HEADERS in columns
    # A header takes two bytes at least. Room that nothing is written to costs no memory.
    headers_max = bytes_max // 2 if has_headers else 0
    keys = _Room("key" in columns, rows_max, bytes_max)
    values = _Room("value" in columns, rows_max, bytes_max)
    lists = _Room(has_headers, rows_max, 0)
    names = _Room(has_headers, headers_max, bytes_max)
    contents = _Room(has_headers, headers_max, bytes_max)
    offsets, times = np.empty(rows_max, np.int64), np.empty(rows_max, np.int64)
    kinds = np.empty(rows_max, np.int32)
    wanted = (
        ("key" in columns) * kernel.KEY
        | ("value" in columns) * kernel.VALUE
        | has_headers * kernel.HEADER
    )
    counters = np.zeros(kernel.COUNTERS, np.int64)
    for part in parts:
        kernel.decode(
            np.frombuffer(part.buffer, np.uint8), np.array(part.segments, np.int64),
            first, end, wanted, counters,
            offsets, times, kinds,
            keys.ends, keys.data, keys.bits,
            values.ends, values.data, values.bits,
            lists.ends, lists.bits, names.ends, names.data,
            contents.ends, contents.data, contents.bits,
        )  # fmt: skip
        if counters[kernel.PROBLEM]:
            raise InvalidBatch(kernel.PROBLEMS[counters[kernel.PROBLEM]])
    counted = [int(count) for count in counters]
    rows = counted[kernel.ROWS]

    def column(name: str) -> Any:
        kind = ARROW_TYPES[name]
        match name:
            case "key":
                return keys.array(kind, rows, counted[kernel.KEY_BYTES], counted[kernel.NULL_KEYS])
            case "value":
                return values.array(
                    kind, rows, counted[kernel.VALUE_BYTES], counted[kernel.NULL_VALUES]
                )
            case "topic":
                return _repeated(topic, rows)
            case "partition":
                return _numbers(kind, np.full(rows, partition, np.int32))
            case "offset":
                return _numbers(kind, offsets[:rows])
            case "timestamp":
                return _numbers(kind, times[:rows])
            case "timestampType":
                return _numbers(kind, kinds[:rows])
        return _headers(kind, rows, counted, lists, names, contents)

    return pa.RecordBatch.from_arrays(
        [column(name) for name in columns], schema=arrow_schema(columns)
    )


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

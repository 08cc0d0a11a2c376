"""The compiled loop over records: from the bytes of a batch into the buffers of Arrow columns.

It needs numba; without it `decoder.py` uses its plain builder, which gives the same rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba as numba_package
from numba.core import cgutils as cgutils_module
from numba.extending import intrinsic as intrinsic_function

Function = Callable[..., Any]

# Numba's own annotations are incomplete.
numba: Any = numba_package
types: Any = numba_package.types
cgutils: Any = cgutils_module
intrinsic: Any = intrinsic_function

# The fields of a BatchSpan, one row of the array `spans` for each record batch.
POSITION, STOP, COUNT, BASE_OFFSET, LAST_DELTA, BASE_MS, APPEND_MS, IS_APPEND = range(8)

# What the loop counts, and the problem that it found.
ROWS, KEY_BYTES, VALUE_BYTES, NULL_KEYS, NULL_VALUES = range(5)
HEADERS, NULL_HEADERS, NAME_BYTES, CONTENT_BYTES, NULL_CONTENTS, PROBLEM = range(5, 11)
COUNTERS = 11

INT_BITS, LONG_BITS = 35, 70
"""The first shift that is too large for a varint of 32 and of 64 bits."""
LONG_MAX = (1 << 63) - 1

KEY, VALUE, HEADER, OFFSET, TIME, KIND = 1, 2, 4, 8, 16, 32
"""Which columns are wanted, as bits."""

PROBLEMS = (
    "",
    "a record is longer than its batch",
    "the offsets of a batch do not grow",
    "the length of a key, value or header is negative",
    "a record does not end where its length says",
    "a record has more headers than bytes",
    "a header's name must not be null",
    "a record's offset is beyond its batch",
    "bytes follow the last record of a batch",
)
(_, TOO_LONG, NOT_GROWING, NEGATIVE, WRONG_END, MANY_HEADERS, NULL_NAME, BEYOND, FOLLOW) = range(9)

_read_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_bytes = types.Array(types.uint8, 1, "C")
_ints = types.Array(types.int32, 1, "C")
_longs = types.Array(types.int64, 1, "C")
_rows = types.Array(types.int64, 2, "C")
_i8 = types.int64

DECODE = types.void(
    _read_bytes, _rows, _i8, _i8, _i8, _longs,
    _longs, _longs, _ints,
    _ints, _bytes, _bytes,
    _ints, _bytes, _bytes,
    _ints, _bytes, _ints, _bytes, _ints, _bytes, _bytes,
)  # fmt: skip


def compiled(signature: Any) -> Callable[[Function], Function]:
    """Compile now, or load what an earlier process compiled and cached."""

    def compile_it(function: Function) -> Function:
        options = {"cache": True, "nogil": True, "error_model": "numpy"}
        try:
            made: Function = numba.njit(signature, **options)(function)
        except RuntimeError:
            # Neither the package's own folder nor the user's cache is writable.
            folder = _private_folder()
            if folder is None:
                options["cache"] = False
            else:
                numba.config.CACHE_DIR = str(folder)
            made = numba.njit(signature, **options)(function)
        return made

    return compile_it


def _private_folder() -> Path | None:
    """A temporary folder that only this user can write to, since its contents are executed."""
    folder = Path(tempfile.gettempdir(), f"headrace-numba-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    return folder if found.st_uid == os.getuid() and not found.st_mode & 0o022 else None


# For helpers, which are compiled into the cached code of the functions that call them.
inlined = numba.njit(nogil=True, error_model="numpy")


@intrinsic
def copy_bytes(context, out, at, src, begin, size):  # type: ignore[no-untyped-def]
    """Copy bytes from one array to another without checking bounds."""
    signature = types.void(out, types.int64, src, types.int64, types.int64)

    def generate(target, builder, made, given):  # type: ignore[no-untyped-def]
        to = target.make_array(made.args[0])(target, builder, given[0])
        of = target.make_array(made.args[2])(target, builder, given[2])
        cgutils.raw_memcpy(
            builder,
            builder.gep(to.data, [given[1]]),
            builder.gep(of.data, [given[3]]),
            given[4],
            1,
        )
        return target.get_dummy_value()

    return signature, generate


@inlined
def varint(src, pos, limit, bits_max):  # type: ignore[no-untyped-def]
    """A varint with zigzag still applied, and the position after it; -1 if it does not end."""
    value = 0
    shift = 0
    while pos < limit and shift < bits_max:
        byte = types.int64(src[pos])
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
    return 0, -1


@inlined
def field(src, pos, limit, wanted, out, at):  # type: ignore[no-untyped-def]
    """Copy a key, value or header; returns the position after it and its size, -1 for null.

    A negative position is the negated number of a problem.
    """
    size, pos = varint(src, pos, limit, INT_BITS)
    if pos < 0 or (size & 1 and size != 1):
        return -NEGATIVE, 0
    if size == 1:
        return pos, -1
    size >>= 1
    if size > limit - pos:
        return -WRONG_END, 0
    if wanted:
        copy_bytes(out, at, src, pos, size)
    return pos + size, size


@compiled(DECODE)
def decode(  # type: ignore[no-untyped-def]
    src, spans, first, end, wanted, counters,
    offsets, times, kinds,
    key_ends, keys, key_bits,
    value_ends, values, value_bits,
    list_ends, list_bits, name_ends, names, content_ends, contents, content_bits,
):  # fmt: skip
    """Decode the records whose offsets are in [first, end), one row for each.

    The caller has set all validity bits; those of nulls are cleared. Stops at the first problem.
    """
    row = counters[ROWS]
    key_at, value_at = counters[KEY_BYTES], counters[VALUE_BYTES]
    header, name_at, content_at = counters[HEADERS], counters[NAME_BYTES], counters[CONTENT_BYTES]
    want_key, want_value, want_headers = wanted & KEY, wanted & VALUE, wanted & HEADER
    want_offset, want_time, want_kind = wanted & OFFSET, wanted & TIME, wanted & KIND
    for number in range(spans.shape[0]):
        pos, stop = spans[number, POSITION], spans[number, STOP]
        base_offset, last_delta = spans[number, BASE_OFFSET], spans[number, LAST_DELTA]
        base_ms, kind = spans[number, BASE_MS], spans[number, IS_APPEND]
        before = -1
        is_whole = True
        for _ in range(spans[number, COUNT]):
            size, pos = varint(src, pos, stop, INT_BITS)
            if pos < 0 or size & 1 or (size >> 1) > stop - pos:
                counters[PROBLEM] = TOO_LONG
                return
            limit = pos + (size >> 1)
            delta_ms, pos = varint(src, pos + 1, limit, LONG_BITS)
            if pos < 0:
                counters[PROBLEM] = WRONG_END
                return
            delta, pos = varint(src, pos, limit, INT_BITS)
            if pos < 0 or delta & 1 or (delta >> 1) <= before:
                counters[PROBLEM] = NOT_GROWING
                return
            before = delta >> 1
            if before > last_delta:
                counters[PROBLEM] = BEYOND
                return
            offset = base_offset + before
            if offset >= end:
                is_whole = False
                break
            if offset < first:
                pos = limit
                continue

            pos, size = field(src, pos, limit, want_key, keys, key_at)
            if pos < 0:
                counters[PROBLEM] = -pos
                return
            if want_key:
                if size < 0:
                    key_bits[row >> 3] &= types.uint8(~(1 << (row & 7)) & 255)
                    counters[NULL_KEYS] += 1
                else:
                    key_at += size
                key_ends[row + 1] = key_at

            pos, size = field(src, pos, limit, want_value, values, value_at)
            if pos < 0:
                counters[PROBLEM] = -pos
                return
            if want_value:
                if size < 0:
                    value_bits[row >> 3] &= types.uint8(~(1 << (row & 7)) & 255)
                    counters[NULL_VALUES] += 1
                else:
                    value_at += size
                value_ends[row + 1] = value_at

            count, pos = varint(src, pos, limit, INT_BITS)
            # A header takes at least two bytes, its two lengths.
            if pos < 0 or count & 1 or (count >> 1) > (limit - pos) >> 1:
                counters[PROBLEM] = MANY_HEADERS
                return
            for _ in range(count >> 1):
                pos, size = field(src, pos, limit, want_headers, names, name_at)
                if pos < 0 or size < 0:
                    counters[PROBLEM] = -pos if pos < 0 else NULL_NAME
                    return
                name_at += size
                pos, size = field(src, pos, limit, want_headers, contents, content_at)
                if pos < 0:
                    counters[PROBLEM] = -pos
                    return
                if want_headers:
                    name_ends[header + 1] = name_at
                    if size < 0:
                        content_bits[header >> 3] &= types.uint8(~(1 << (header & 7)) & 255)
                        counters[NULL_CONTENTS] += 1
                    else:
                        content_at += size
                    content_ends[header + 1] = content_at
                    header += 1
            if want_headers:
                list_ends[row + 1] = header
                if count == 0:
                    # As in the official connector, no headers are null, not an empty list.
                    list_bits[row >> 3] &= types.uint8(~(1 << (row & 7)) & 255)
                    counters[NULL_HEADERS] += 1

            if pos != limit:
                counters[PROBLEM] = WRONG_END
                return
            if want_offset:
                offsets[row] = offset
            if want_time:
                time_ms = base_ms + (((delta_ms >> 1) & LONG_MAX) ^ -(delta_ms & 1))
                times[row] = (spans[number, APPEND_MS] if kind else time_ms) * 1000
            if want_kind:
                kinds[row] = kind
            row += 1
        if is_whole and pos != stop:
            counters[PROBLEM] = FOLLOW
            return
    counters[ROWS] = row
    counters[KEY_BYTES], counters[VALUE_BYTES] = key_at, value_at
    counters[HEADERS], counters[NAME_BYTES], counters[CONTENT_BYTES] = header, name_at, content_at

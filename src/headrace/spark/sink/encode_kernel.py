"""The compiled loops over rows: which partition each goes to, and its bytes in a record batch.

They need numba; without it `record_batches.py` encodes records one at a time, much more slowly.
"""

from __future__ import annotations

from numba import types

from headrace.spark.source.decode_kernel import compiled, copy_bytes, inlined

_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)
_ints_in = types.Array(types.int32, 1, "C", readonly=True)
_flags = types.Array(types.uint8, 1, "C")
_bytes_out = types.Array(types.uint8, 1, "C")
_ints = types.Array(types.int32, 1, "C")
_longs = types.Array(types.int64, 1, "C")
_i8 = types.int64

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFF_FFFF


@compiled(types.void(_bytes_in, _ints_in, _flags, _i8, _i8, _ints))
def choose_partitions(keys, ends, nulls, partitions, keyless_partition, out):  # type: ignore[no-untyped-def]
    """The partition of each key by Kafka's hash; all rows without a key go to one partition."""
    for row in range(len(nulls)):
        if nulls[row]:
            out[row] = keyless_partition
            continue
        begin = types.int64(ends[row])
        length = types.int64(ends[row + 1]) - begin
        hashed = (SEED ^ length) & MASK
        whole = length & ~3
        at = begin
        while at < begin + whole:
            word = (
                types.int64(keys[at])
                | types.int64(keys[at + 1]) << 8
                | types.int64(keys[at + 2]) << 16
                | types.int64(keys[at + 3]) << 24
            )
            word = (word * MULTIPLIER) & MASK
            word = ((word ^ (word >> 24)) * MULTIPLIER) & MASK
            hashed = ((hashed * MULTIPLIER) & MASK) ^ word
            at += 4
        if length > whole:
            word = types.int64(0)
            for i in range(length - whole):
                word |= types.int64(keys[at + i]) << (8 * i)
            hashed = ((hashed ^ word) * MULTIPLIER) & MASK
        hashed = ((hashed ^ (hashed >> 13)) * MULTIPLIER) & MASK
        out[row] = ((hashed ^ (hashed >> 15)) & 0x7FFF_FFFF) % partitions


@inlined
def size_of(number):  # type: ignore[no-untyped-def]
    """How many bytes a number takes as an unsigned varint."""
    size = 1
    while number > 127:
        number >>= 7
        size += 1
    return size


@inlined
def put(out, at, number):  # type: ignore[no-untyped-def]
    """Write a number as an unsigned varint; returns the position after it."""
    while number > 127:
        out[at] = number & 127 | 128
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


@inlined
def put_bytes(out, at, data, begin, size):  # type: ignore[no-untyped-def]
    """Write bytes with their length, -1 for null; returns the position after them."""
    if size < 0:
        return put(out, at, 1)
    at = put(out, at, size << 1)
    copy_bytes(out, at, data, begin, size)
    return at + size


ENCODE = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]


@compiled(
    ENCODE(
        _longs, _i8, _i8, _i8,
        _bytes_in, _ints_in, _flags,
        _bytes_in, _ints_in, _flags,
        _bytes_out,
    )
)  # fmt: skip
def encode(  # type: ignore[no-untyped-def]
    order, begin, stop, limit,
    keys, key_ends, key_nulls,
    values, value_ends, value_nulls,
    out,
):  # fmt: skip
    """Encode rows from `begin` on, as many as fit the limit, but at least one.

    Returns the first row that is left, and how many bytes were written.
    """
    at = types.int64(0)
    i = begin
    while i < stop:
        row = order[i]
        key_begin, value_begin = types.int64(key_ends[row]), types.int64(value_ends[row])
        key = types.int64(-1) if key_nulls[row] else types.int64(key_ends[row + 1]) - key_begin
        value = (
            types.int64(-1) if value_nulls[row] else types.int64(value_ends[row + 1]) - value_begin
        )
        # Attributes, time and the number of headers take a byte each: all of them are 0.
        body = 3 + size_of((i - begin) << 1)
        body += 1 if key < 0 else size_of(key << 1) + key
        body += 1 if value < 0 else size_of(value << 1) + value
        if i > begin and at + size_of(body << 1) + body > limit:
            break
        at = put(out, at, body << 1)
        out[at] = 0
        out[at + 1] = 0
        at = put(out, at + 2, (i - begin) << 1)
        at = put_bytes(out, at, keys, key_begin, key)
        at = put_bytes(out, at, values, value_begin, value)
        out[at] = 0
        at += 1
        i += 1
    return i, at

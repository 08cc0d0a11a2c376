"""Records as they lie in a batch's payload: where each starts and ends, what cleaning asks of it.

The cleaner copies the bytes of a record that stays. Base offset and base timestamp of its batch do
not change, so the deltas inside remain right, and values and headers are never unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.protocol.primitives import (
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    ProtocolError,
    read_varint,
    write_varint,
)

_new_tuple = tuple.__new__


class RawRecord(NamedTuple):
    """One record: `payload[start:end]` with its length, `payload[body:end]` without."""

    start: int
    body: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def raw_records(payload: bytes, count: int) -> Iterator[RawRecord]:
    """Walk exactly `count` records that fill the payload; ProtocolError if they do not."""
    pos = 0
    size = len(payload)
    # The cleaner spends most of its time here. Most numbers take one byte, and a call for each
    # would double that time, so one-byte numbers are read in place.
    try:
        for _ in range(count):
            start = pos
            byte = payload[pos]
            if byte < 128:
                length, body = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                length, body = read_varint(payload, pos, VARINT_BYTES_MAX)
            end = body + length
            if length < 0 or end > size:
                raise ProtocolError(f"a record of {length} bytes does not fit its batch")
            pos = body + 1  # after one byte of attributes, of which no bit is in use
            byte = payload[pos]
            if byte < 128:
                timestamp_delta, pos = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                timestamp_delta, pos = read_varint(payload, pos, VARLONG_BYTES_MAX)
            byte = payload[pos]
            if byte < 128:
                offset_delta, pos = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                offset_delta, pos = read_varint(payload, pos, VARINT_BYTES_MAX)
            byte = payload[pos]
            if byte < 128:
                key_bytes, pos = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                key_bytes, pos = read_varint(payload, pos, VARINT_BYTES_MAX)
            key = None
            if key_bytes >= 0:
                key = payload[pos : pos + key_bytes]
                pos += key_bytes
            byte = payload[pos]
            if byte < 128:
                value_bytes, pos = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                value_bytes, pos = read_varint(payload, pos, VARINT_BYTES_MAX)
            if key_bytes < -1 or value_bytes < -1 or pos + value_bytes > end:
                raise ProtocolError("a key or value does not fit its record")
            yield _new_tuple(
                RawRecord,
                (start, body, end, timestamp_delta, offset_delta, key, value_bytes >= 0),
            )
            pos = end
    except IndexError:
        raise ProtocolError("the payload ends inside a record") from None
    if pos != size:
        raise ProtocolError(f"{size - pos} bytes follow the last record")


def with_timestamp_delta(payload: bytes, record: RawRecord, timestamp_delta: int) -> bytearray:
    """The record's bytes with another timestamp delta, for a batch whose base timestamp moved."""
    _, after = read_varint(payload, record.body + 1, VARLONG_BYTES_MAX)
    body = bytearray(payload[record.body : record.body + 1])
    write_varint(body, timestamp_delta)
    body += payload[after : record.end]
    out = bytearray()
    write_varint(out, len(body))
    return out + body

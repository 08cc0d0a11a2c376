"""The records inside a batch, after unpacking: a list of zigzag varints and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.protocol.primitives import (
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    ProtocolError,
    more_uvarint,
    read_varint,
    write_varint,
)

_new_tuple = tuple.__new__


class Record(NamedTuple):
    """One message of a topic, with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode_records(
    records: Iterable[Record], base_offset: int, base_timestamp: int
) -> tuple[bytearray, int]:
    """Encode records one after the other, and count them."""
    out = bytearray()
    body = bytearray()
    count = 0
    for offset, timestamp, key, value, headers in records:
        body.clear()
        body.append(0)  # attributes, of which no bit is in use
        write_varint(body, timestamp - base_timestamp)
        write_varint(body, offset - base_offset)
        _write_bytes(body, key)
        _write_bytes(body, value)
        write_varint(body, len(headers))
        for name, content in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
        write_varint(out, len(body))
        out += body
        count += 1
    return out, count


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None
) -> Iterator[Record]:
    """Decode exactly `count` records; raises ProtocolError at the first that is malformed.

    Lengths are read inline and positions only grow, so that one comparison at a record's end
    finds every length inside it that was wrong.
    """
    pos, end, last_delta = 0, len(data), -1
    try:
        for _ in range(count):
            n = data[pos]
            pos += 1
            if n > 127:
                n, pos = more_uvarint(data, pos, n)
            stop = pos + (n >> 1)
            if n & 1 or stop > end:
                raise ProtocolError("a record is longer than its batch")
            delta_ms, pos = read_varint(data, pos + 1, VARLONG_BYTES_MAX)
            n = data[pos]
            pos += 1
            if n > 127:
                n, pos = more_uvarint(data, pos, n)
            delta = n >> 1
            if n & 1 or delta <= last_delta:
                raise ProtocolError("the offsets of a batch do not grow")
            last_delta = delta
            key, pos = _read_bytes(data, pos)
            value, pos = _read_bytes(data, pos)
            headers, pos = _read_headers(data, pos, stop) if data[pos] else ((), pos + 1)
            if pos != stop:
                raise ProtocolError("a record does not end where its length says")
            timestamp = base_timestamp + delta_ms if append_time_ms is None else append_time_ms
            yield _new_tuple(Record, (base_offset + delta, timestamp, key, value, headers))
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a record is malformed: {error}") from error
    if pos != end:
        raise ProtocolError(f"{end - pos} bytes follow the last record of a batch")


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1 in zigzag
    else:
        write_varint(out, len(value))
        out += value


def _read_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    n = data[pos]
    pos += 1
    if n > 127:
        n, pos = more_uvarint(data, pos, n)
    if n & 1:
        if n != 1:
            raise ProtocolError("the length of a key, value or header is negative")
        return None, pos
    stop = pos + (n >> 1)
    return data[pos:stop], stop


def _read_headers(data: bytes, pos: int, stop: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, pos = read_varint(data, pos, VARINT_BYTES_MAX)
    # A header takes at least two lengths.
    if not 0 <= count <= (stop - pos) // 2:
        raise ProtocolError("a record has more headers than bytes")
    headers = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos)
        if name is None:
            raise ProtocolError("a header's name must not be null")
        value, pos = _read_bytes(data, pos)
        headers.append((name.decode(), value))
    return headers, pos

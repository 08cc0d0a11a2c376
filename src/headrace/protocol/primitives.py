"""The smallest pieces of the wire: variable-length integers, and the error for malformed bytes."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What codecs read from: anything that indexes to an int and slices."""

ZERO_UUID = bytes(16)
"""The id that means 'no id'."""

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10


class ProtocolError(ValueError):
    """The bytes do not fit the schema, or a value cannot be encoded by it."""


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint and the position after it."""
    return more_uvarint(buf, pos + 1, buf[pos])


def more_uvarint(buf: Buffer, pos: int, value: int) -> tuple[int, int]:
    """Finish an unsigned 32-bit varint whose first byte was read already, as codecs do inline."""
    if value < 128:
        return value, pos
    value &= 127
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                raise ProtocolError("a varint exceeds 32 bits")
            return value, pos
    raise ProtocolError(f"a varint is longer than {VARINT_BYTES_MAX} bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def read_varint(buf: Buffer, pos: int, bytes_max: int) -> tuple[int, int]:
    """Read a signed (zigzag) varint of at most `bytes_max` bytes and the position after it."""
    byte = buf[pos]
    pos += 1
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), pos
    value = byte & 127
    for shift in range(7, 7 * bytes_max, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> (32 if bytes_max == VARINT_BYTES_MAX else 64):
                raise ProtocolError("a varint exceeds its type")
            return value >> 1 ^ -(value & 1), pos
    raise ProtocolError(f"a varint is longer than {bytes_max} bytes")


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed (zigzag) varint of up to 64 bits."""
    value = value << 1 if value >= 0 else ~(value << 1)
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def write_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    """Append the tagged fields of a struct, given in ascending order (KIP-482)."""
    write_uvarint(out, len(tags))
    for tag, body in tags:
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body


def read_tag(buf: Buffer, pos: int, end: int, last: int) -> tuple[int, int, int]:
    """Read the head of the tagged field after `last`: its tag, where it starts, where it stops."""
    tag, pos = read_uvarint(buf, pos)
    size_bytes, pos = read_uvarint(buf, pos)
    if tag <= last:
        raise ProtocolError(f"tagged field {tag} is repeated or out of order")
    if size_bytes > end - pos:
        raise ProtocolError(f"tagged field {tag} is larger than what is left of the frame")
    return tag, pos, pos + size_bytes


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Skip the tagged fields of a struct that knows none of them."""
    count, pos = more_uvarint(buf, pos, count)
    last = -1
    for _ in range(count):
        last, _, pos = read_tag(buf, pos, end, last)
    return pos

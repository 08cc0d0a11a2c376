"""The bytes of a state topic: keys, values, message bodies, and the partition of an id."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from headrace.ledger.machine import CommandPosition, Headers, LedgerEntry

VERSION = 1
# The writer of records that come from an intake; real writers are positive.
INTAKE_WRITER = 0
ID_BYTES_MAX = 1024
# Version, due time, append time, count, writer, length of the state.
_HEAD = struct.Struct(">BqqiQB")
_LENGTH = struct.Struct(">i")
_NONE = _LENGTH.pack(-1)


def partition_of(id: str, partitions: int) -> int:
    """The state partition of an id; everything about the id is in it."""
    return zlib.crc32(id.encode()) % partitions


def state_key(id: str, position: CommandPosition) -> bytes:
    """PARTITION/OFFSET/ID, unique to one command, so that deleting it deletes no other."""
    return f"{position[0]}/{position[1]}/{id}".encode()


def read_key(key: bytes) -> tuple[str, CommandPosition]:
    """The id and position of a key; ValueError if it is malformed."""
    partition, offset, id = key.decode().split("/", 2)
    return id, CommandPosition(int(partition), int(offset))


def state_value(entry: LedgerEntry, writer: int = INTAKE_WRITER) -> bytes:
    """An entry as stored, without `other_positions`: those have records of their own."""
    state = entry.state.encode()
    head = _HEAD.pack(VERSION, entry.due_ms, entry.at_ms, entry.count, writer, len(state))
    return head + state + entry.body


def read_value(id: str, position: CommandPosition, value: bytes) -> tuple[LedgerEntry, int]:
    """The entry and its writer; ValueError if another version wrote it."""
    try:
        version, due_ms, at_ms, count, writer, state_bytes = _HEAD.unpack_from(value)
    except struct.error:
        version = -1
    if version != VERSION:
        raise ValueError(f"the state record of {id} was written by another version")
    body_at = _HEAD.size + state_bytes
    state = value[_HEAD.size : body_at].decode()
    return LedgerEntry(id, state, due_ms, at_ms, position, count, value[body_at:]), writer


def read_id(raw: bytes) -> str:
    """An id as a header carries it; ValueError if it is not valid."""
    if not raw or len(raw) > ID_BYTES_MAX:
        raise ValueError(f"an id has 1 to {ID_BYTES_MAX} bytes, not {len(raw)}")
    try:
        id = raw.decode()
    except UnicodeDecodeError:
        raise ValueError("an id must be UTF-8 text") from None
    if "\0" in id:
        raise ValueError("an id must not contain zero bytes")
    return id


def pack(parts: Sequence[bytes | None]) -> bytes:
    """Byte strings as one: each behind its length, -1 for None."""
    pieces: list[bytes] = []
    for part in parts:
        if part is None:
            pieces.append(_NONE)
        else:
            pieces.append(_LENGTH.pack(len(part)))
            pieces.append(part)
    return b"".join(pieces)


def unpack(data: bytes) -> list[bytes | None]:
    """The byte strings of `pack`; ValueError if the data is malformed."""
    parts: list[bytes | None] = []
    at, size = 0, len(data)
    read = _LENGTH.unpack_from
    try:
        while at < size:
            (length,) = read(data, at)
            at += 4
            if length < 0:
                parts.append(None)
            else:
                parts.append(data[at : at + length])
                at += length
    except struct.error:
        at = -1
    if at != size:
        raise ValueError(f"{size} bytes are not a packed list of byte strings")
    return parts


def pack_message(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """A message as the body of an entry."""
    parts: list[bytes | None] = [topic.encode(), key, value]
    for name, content in headers:
        parts.append(name.encode())
        parts.append(content)
    return pack(parts)


def unpack_message(
    body: bytes,
) -> tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Topic, key, value and headers of `pack_message`."""
    topic, key, value, *rest = unpack(body)
    headers = [
        ((name or b"").decode(), content)
        for name, content in zip(rest[::2], rest[1::2], strict=True)
    ]
    return (topic or b"").decode(), key, value, headers

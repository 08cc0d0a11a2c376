"""The records of a state topic: key and value of an entry, and the partition of an id."""

from __future__ import annotations

import struct
import zlib

from headrace.ledger.machine import Entry, Place

VERSION = 1
# Nobody: an intake, whose records every keeper takes for news.
NOBODY = 0
ID_BYTES_MAX = 1024
# Version, due, at, count, writer, bytes of the kind.
_HEAD = struct.Struct(">BqqiQB")


def partition_of(id: str, partitions: int) -> int:
    """Where the state of an id lies; all that concerns it meets there."""
    return zlib.crc32(id.encode()) % partitions


def state_key(id: str, place: Place) -> bytes:
    """PARTITION/OFFSET/ID: of one command alone, so that deleting it deletes no other."""
    return f"{place[0]}/{place[1]}/{id}".encode()


def read_key(key: bytes) -> tuple[str, Place]:
    """Id and place of a key; ValueError if it is none."""
    partition, offset, id = key.decode().split("/", 2)
    return id, Place(int(partition), int(offset))


def state_value(entry: Entry, writer: int = NOBODY) -> bytes:
    """An entry as it is stored; `also` is left out, since those have records of their own."""
    kind = entry.kind.encode()
    head = _HEAD.pack(VERSION, entry.due_ms, entry.at_ms, entry.count, writer, len(kind))
    return head + kind + entry.body


def read_value(id: str, place: Place, value: bytes) -> tuple[Entry, int]:
    """The entry and who wrote it; ValueError if it is none."""
    try:
        version, due_ms, at_ms, count, writer, kind_bytes = _HEAD.unpack_from(value)
    except struct.error:
        version = -1
    if version != VERSION:
        raise ValueError(f"the state of {id} is in a form of another version")
    body_at = _HEAD.size + kind_bytes
    kind = value[_HEAD.size : body_at].decode()
    return Entry(id, kind, due_ms, at_ms, place, count, value[body_at:]), writer


def read_id(raw: bytes) -> str:
    """An id as a header carries it; ValueError with what is wrong with it."""
    if not raw or len(raw) > ID_BYTES_MAX:
        raise ValueError(f"an id has 1 to {ID_BYTES_MAX} bytes, not {len(raw)}")
    try:
        id = raw.decode()
    except UnicodeDecodeError:
        raise ValueError("an id is text in UTF-8") from None
    if "\0" in id:
        raise ValueError("an id has no zero bytes")
    return id

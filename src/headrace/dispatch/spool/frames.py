"""A spool's bytes: changes as frames with a checksum each; pure.

The file begins with MAGIC and eight bytes of salt. The salt goes into every checksum, so that a
payload that contains (a piece of) another spool is never mistaken for frames of this one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from headrace.dispatch.spool.port import (
    DoneRead,
    JobDone,
    JobPut,
    JobReturned,
    JobSent,
    SpoolChange,
)

MAGIC = b"HRSPOOL1"
HEADER_BYTES = len(MAGIC) + 8
ID_BYTES_MAX = 255
BODY_BYTES_MAX = 64 * 1024 * 1024

_MARK = 0xA7
_FRAME = struct.Struct(">BII")  # mark, length of the body, checksum of the body
_HEAD = struct.Struct(">BB")  # kind, length of the id
_PUT, _SENT, _BACK, _DONE, _READ = b"PSBDR"
_TIME = struct.Struct(">q")
_PLACE = struct.Struct(">iq")


def encode(changes: Iterable[SpoolChange], salt: int) -> bytes:
    """The frames of these changes, one after another."""
    parts: list[bytes] = []
    for change in changes:
        body = _body(change)
        parts.append(_FRAME.pack(_MARK, len(body), crc32c(body, salt)))
        parts.append(body)
    return b"".join(parts)


class Scan(NamedTuple):
    """The changes in a spool's bytes; what follows `good_bytes` is an incomplete write."""

    changes: list[SpoolChange]
    good_bytes: int
    damaged_bytes: int


def scan(data: bytes, salt: int, start: int = 0) -> Scan:
    """Read frames to the end; damage in the middle is skipped and counted."""
    changes: list[SpoolChange] = []
    good = at = start
    damaged = 0
    while at < len(data):
        frame = _frame(data, at, salt)
        if frame is None:
            # Complete frames may follow damage, but never a torn tail.
            at = data.find(_MARK, at + 1)
            if at < 0:
                break
            continue
        damaged += at - good
        change, at = frame
        changes.append(change)
        good = at
    return Scan(changes, good, damaged)


def _frame(data: bytes, at: int, salt: int) -> tuple[SpoolChange, int] | None:
    begin = at + _FRAME.size
    if begin > len(data):
        return None
    mark, length, check = _FRAME.unpack_from(data, at)
    end = begin + length
    if mark != _MARK or not _HEAD.size <= length <= BODY_BYTES_MAX or end > len(data):
        return None
    body = data[begin:end]
    if crc32c(body, salt) != check:
        return None
    return _change(body), end


def _body(change: SpoolChange) -> bytes:
    if isinstance(change, DoneRead):
        return _HEAD.pack(_READ, 0) + _PLACE.pack(change.partition, change.next_offset)
    id = change.id.encode()
    if isinstance(change, JobPut):
        return b"".join(
            (_HEAD.pack(_PUT, len(id)), id, _TIME.pack(change.submitted_ms), change.value)
        )
    if isinstance(change, JobSent):
        return _HEAD.pack(_SENT, len(id)) + id + _PLACE.pack(change.partition, change.offset)
    return _HEAD.pack(_DONE if isinstance(change, JobDone) else _BACK, len(id)) + id


def _change(body: bytes) -> SpoolChange:
    kind, length = _HEAD.unpack_from(body)
    at = _HEAD.size + length
    if kind == _READ:
        return DoneRead(*_PLACE.unpack_from(body, at))
    id = body[_HEAD.size : at].decode()
    if kind == _PUT:
        (submitted_ms,) = _TIME.unpack_from(body, at)
        return JobPut(id, body[at + _TIME.size :], submitted_ms)
    if kind == _SENT:
        return JobSent(id, *_PLACE.unpack_from(body, at))
    return JobDone(id) if kind == _DONE else JobReturned(id)

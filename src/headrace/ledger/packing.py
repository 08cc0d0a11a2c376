"""A list of byte strings, some of them None, as one byte string."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_LENGTH = struct.Struct(">i")
_NONE = _LENGTH.pack(-1)


def pack(parts: Sequence[bytes | None]) -> bytes:
    """Each part behind its length, -1 for None."""
    pieces: list[bytes] = []
    for part in parts:
        if part is None:
            pieces.append(_NONE)
        else:
            pieces.append(_LENGTH.pack(len(part)))
            pieces.append(part)
    return b"".join(pieces)


def unpack(data: bytes) -> list[bytes | None]:
    """The parts again; ValueError if it is no such list."""
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
        raise ValueError(f"{size} bytes are no list of byte strings")
    return parts


def pack_message(
    topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """A record on its way, as a body."""
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

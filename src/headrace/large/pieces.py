"""What can be sent as a large message, cut into pieces: bytes, files and iterators of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

# What is read of a file at once.
READ_BYTES = 262_144


def pieces_of(value: Any) -> Iterator[bytes]:
    """The bytes of a value, a part at a time; TypeError for one that is text."""
    if hasattr(value, "read"):
        while piece := value.read(READ_BYTES):
            yield _bytes(piece)
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(value).cast("B")
        for start in range(0, len(view), READ_BYTES):
            yield bytes(view[start : start + READ_BYTES])
    else:
        for piece in value:
            yield _bytes(piece)


def cut(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of one size; the last may be shorter, and there is at least one."""
    waiting = bytearray()
    is_first = True
    for piece in pieces:
        waiting += piece
        # One more than fits has to be there: the last piece is told from the others.
        while len(waiting) > size:
            yield bytes(waiting[:size])
            is_first = False
            del waiting[:size]
    if waiting or is_first:
        yield bytes(waiting)


def _bytes(piece: Any) -> bytes:
    if isinstance(piece, str):
        raise TypeError("a large message is read as bytes: open the file with mode 'rb'")
    return bytes(piece)

"""A body as a stream of pieces: read from any value, cut to one size, compressed, decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# How much of a file is read at once.
READ_BYTES = 262_144
# What zlib calls the window size of gzip.
GZIP = 31
LEVEL = 1
# A body whose beginning does not shrink to below this share is sent uncompressed.
WORTH = 0.9
PROBE_BYTES = 65_536


def pieces_of(value: Any) -> Iterator[bytes]:
    """The bytes of a value, piece by piece; TypeError if a file or iterator gives text."""
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
    """The same bytes in pieces of one size; only the last may be shorter.

    There is at least one piece, if only an empty one.
    """
    waiting = bytearray()
    is_first = True
    for piece in pieces:
        waiting += piece
        # A full piece is held back until more bytes follow, so that the last one is never empty.
        while len(waiting) > size:
            yield bytes(waiting[:size])
            is_first = False
            del waiting[:size]
    if waiting or is_first:
        yield bytes(waiting)


def choose(first: bytes, wanted: str) -> str:
    """The codec for a body by its beginning: pictures and archives would not shrink."""
    if wanted != "gzip":
        return "none"
    probe = first[:PROBE_BYTES]
    return "gzip" if len(zlib.compress(probe, LEVEL, GZIP)) < WORTH * len(probe) else "none"


def compress(pieces: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """The pieces of a body as they are stored."""
    if codec == "none":
        yield from pieces
        return
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    for piece in pieces:
        packed = packer.compress(piece)
        if packed:
            yield packed
    yield packer.flush()


class Decompressor:
    """Reads a stored body as it was before compression."""

    def __init__(self, read: Callable[[int], bytes], codec: str, step_bytes: int) -> None:
        self._read = read
        self._step_bytes = step_bytes
        self._unpacker = zlib.decompressobj(GZIP) if codec == "gzip" else None
        self._left = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none only at the end; ValueError if the body is cut or damaged."""
        unpacker = self._unpacker
        if unpacker is None:
            return self._read(size)
        while not unpacker.eof:
            data = self._left or self._read(self._step_bytes)
            if not data:
                raise ValueError("the compressed body ends too early")
            try:
                found = unpacker.decompress(data, size)
            except zlib.error as problem:
                raise ValueError(f"the compressed body is damaged: {problem}") from None
            self._left = unpacker.unconsumed_tail
            if found:
                return found
        # Also read past the end, so that the digest of the body covers all of it.
        if unpacker.unused_data or self._read(1):
            raise ValueError("the compressed body has extra bytes at its end")
        return b""


def _bytes(piece: Any) -> bytes:
    if isinstance(piece, str):
        raise TypeError("a large message is read as bytes: open the file with mode 'rb'")
    return bytes(piece)

"""Bodies made smaller before they are sent, a piece at a time, and large again in bounded steps."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

# The window of gzip, as zlib counts it.
GZIP = 31
LEVEL = 1
# A body whose beginning becomes no smaller than this share of it is sent as it is.
WORTH = 0.9
PROBE_BYTES = 65_536


def choose(first: bytes, wanted: str) -> str:
    """The codec for a body that begins like this: pictures and archives gain nothing."""
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


class Unpacking:
    """A stored body as it was: `read` gives up to so many bytes, whatever they come from."""

    def __init__(self, read: Callable[[int], bytes], codec: str, step_bytes: int) -> None:
        self._read = read
        self._step_bytes = step_bytes
        self._unpacker = zlib.decompressobj(GZIP) if codec == "gzip" else None
        self._left = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, nothing at the end only; ValueError if the body is cut or damaged."""
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
        # What is behind its end was read, too, so that whoever checks the body sees all of it.
        if unpacker.unused_data or self._read(1):
            raise ValueError("there is more behind the end of the compressed body")
        return b""

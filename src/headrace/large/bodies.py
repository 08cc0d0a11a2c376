"""The body of a large message, in a spool or a body store, read as a whole or as a stream."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Protocol

from headrace.large.errors import LargeBroken
from headrace.large.headers import Claim
from headrace.large.pieces import Decompressor

if TYPE_CHECKING:
    from headrace.large.body_store import BodyStore
    from headrace.large.spool import Spool

STEP_BYTES = 262_144


class Body(Protocol):
    """A stored body; may be opened many times, from any thread."""

    codec: str
    body_bytes: int
    # The largest size that may be read into memory as a whole.
    load_bytes_max: int

    def open(self) -> Source:
        """Open it at its beginning."""
        ...


class Source(Protocol):
    """The stored bytes of a body, in order."""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none only at the end; LargeBroken if it is not what was sent."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class SpooledBody:
    """The chunks of a whole message; their digests were checked when they came."""

    def __init__(self, spool: Spool, codec: str, size: int, load_bytes_max: int) -> None:
        self.codec = codec
        self.body_bytes = size
        self.load_bytes_max = load_bytes_max
        self._spool = spool

    def open(self) -> Source:
        """Open it at its beginning."""
        return _SpoolSource(self._spool)


class _SpoolSource:
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._index = 0
        self._at = 0

    def read(self, size: int) -> bytes:
        while self._index < len(self._spool):
            found = self._spool.read(self._index, self._at, size)
            if found:
                self._at += len(found)
                return found
            self._index, self._at = self._index + 1, 0
        return b""

    def close(self) -> None:
        self._index = len(self._spool)


class ClaimedBody:
    """A body in a body store; checked while it is read."""

    def __init__(self, claim: Claim, claims: Callable[[], BodyStore], load_bytes_max: int) -> None:
        self.codec = claim.codec
        self.body_bytes = claim.body_bytes
        self.load_bytes_max = load_bytes_max
        self.claim = claim
        # A function, so that the store is opened only if the body is read.
        self._claims = claims

    def open(self) -> Source:
        """From its beginning; BodyMissing or BodyStoreUnavailable if that fails."""
        return _ClaimSource(self._claims().open(self.claim.name), self.claim)


class _ClaimSource:
    def __init__(self, file: IO[bytes], claim: Claim) -> None:
        self._file = file
        self._claim = claim
        self._digest = hashlib.sha256()
        self._count = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        self._count += len(data)
        is_wrong = not data and (
            self._count != self._claim.body_bytes or self._digest.digest() != self._claim.digest
        )
        if is_wrong or self._count > self._claim.body_bytes:
            raise LargeBroken(f"body {self._claim.name} is not what was sent")
        return data

    def close(self) -> None:
        self._file.close()


class BrokenBody:
    """A body that cannot be read; opening it raises the reason."""

    codec = "none"
    body_bytes = 0
    load_bytes_max = 0

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def open(self) -> Source:
        """Raises LargeBroken."""
        raise LargeBroken(self.reason)


class BodyStream(io.RawIOBase):
    """A body as a binary file, read from the beginning to the end."""

    def __init__(self, body: Body) -> None:
        self._source = body.open()
        self._decompressor = Decompressor(self._source.read, body.codec, STEP_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        try:
            found = self._decompressor.read(len(room))
        except ValueError as problem:
            raise LargeBroken(str(problem)) from None
        room[: len(found)] = found
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def open_stream(body: Body) -> IO[bytes]:
    """A body as a buffered file."""
    return io.BufferedReader(BodyStream(body), STEP_BYTES)


def load(body: Body) -> bytes:
    """A whole body in memory; LargeBroken if it is larger than its reader allows.

    A compressed body may be a thousand times larger than its stored size, so that is checked while
    it is read.
    """
    found: list[bytes] = []
    left = body.load_bytes_max
    with open_stream(body) as stream:
        while piece := stream.read(STEP_BYTES):
            left -= len(piece)
            if left < 0:
                raise LargeBroken(
                    f"a large message has more than {body.load_bytes_max} bytes",
                    "read it with message.stream(), or raise Large(load_bytes_max=...)",
                )
            found.append(piece)
    return b"".join(found)

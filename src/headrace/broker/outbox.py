"""What is on its way to one socket: bytes and pieces of files, in order, a bounded part at a time.

A slow client costs one chunk of memory, not the whole answer: pieces of files stay in their files
until the socket takes them. Data in the page cache are read (or sent by `sendfile`) on the loop;
data that would block it are read by a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from headrace.storage.slices import Slice

Bytes = bytes | bytearray
Segment = Bytes | Slice

CHUNK_BYTES = 256 * 1024
# What is copied after `sendfile` has filled the socket: enough to be told when there is room.
NUDGE_BYTES = 16 * 1024
# Small pieces are cheaper to read and send together with their header than by a call of their own.
SENDFILE_BYTES_MIN = 64 * 1024

log = logging.getLogger(__name__)


class ColdReader(Protocol):
    """Reads pieces of files off the loop."""

    def read(self, piece: Slice, done: Callable[[Bytes | OSError], None]) -> None:
        """Call `done` on the loop with the bytes, or with what went wrong."""
        ...


class ThreadReader:
    """Cold reads on a pool of threads (`num.network.threads`)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: Executor, count: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._count = count

    def read(self, piece: Slice, done: Callable[[Bytes | OSError], None]) -> None:
        self._count()

        def work() -> None:
            data: Bytes | OSError
            try:
                data = piece.read()
            except OSError as error:
                data = error
            self._loop.call_soon_threadsafe(done, data)

        self._pool.submit(work)


class Outbox:
    """The sending half of a connection."""

    __slots__ = (
        "_closed",
        "_drained",
        "_fd",
        "_paused",
        "_queue",
        "_reader",
        "_reading",
        "_transport",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: ColdReader,
        sendfile: bool,
        drained: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._drained = drained  # called whenever nothing is on its way any more
        self._queue: deque[Segment] = deque()
        self._paused = False
        self._reading = False
        self._closed = False
        # With a limit of 0 the transport reports at once what the socket did not take, and
        # otherwise holds nothing: memory stays bounded and `sendfile` may follow a write.
        transport.set_write_buffer_limits(high=0)
        self._fd = -1
        if sendfile and transport.get_extra_info("ssl_object") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    @property
    def busy(self) -> bool:
        """Whether something is still on its way."""
        return self._paused or self._reading or bool(self._queue)

    def send(self, segments: list[Segment]) -> None:
        """Queue segments and send what the socket takes now."""
        if len(segments) == 1 and not self.busy:
            only = segments[0]
            if not isinstance(only, Slice):
                self._transport.write(only)
                return
        self._queue.extend(segments)
        self._pump()

    def pause(self) -> None:
        """The socket is full."""
        self._paused = True

    def resume(self) -> None:
        """The socket has taken everything it was given."""
        self._paused = False
        self._pump()
        if not self.busy:
            self._drained()

    def close(self) -> None:
        """Forget what was not sent; the peer is gone."""
        self._closed = True
        self._queue.clear()

    def _pump(self) -> None:
        queue = self._queue
        try:
            while queue and not self._paused and not self._reading and not self._closed:
                first = queue.popleft()
                if not isinstance(first, Slice):
                    self._write_gathered(first)
                elif self._fd >= 0 and len(first) >= SENDFILE_BYTES_MIN:
                    self._send_file(first)
                else:
                    self._send_copy(first, CHUNK_BYTES)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """The answer's length is already told: the only honest way out is to hang up."""
        log.warning("an answer is cut short, since its data cannot be sent: %s", error)
        self._queue.clear()
        self._transport.abort()

    def _write_gathered(self, first: Bytes) -> None:
        """Write bytes together with the small pieces right behind them: one call, one packet."""
        queue = self._queue
        parts: list[Bytes] = [first]
        size = len(first)
        while queue and size < CHUNK_BYTES:
            following = queue[0]
            if isinstance(following, Slice):
                if len(following) > CHUNK_BYTES or self._fd >= 0 <= (
                    len(following) - SENDFILE_BYTES_MIN
                ):
                    break
                data = following.read_nowait()
                if data is None:
                    break
                parts.append(data)
                size += len(data)
            else:
                parts.append(following)
                size += len(following)
            queue.popleft()
        self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def _send_copy(self, piece: Slice, size: int) -> None:
        head, rest = piece.split(size)
        if rest is not None:
            self._queue.appendleft(rest)
        data = head.read_nowait()
        if data is None:
            self._reading = True
            self._reader.read(head, self._cold_read_done)
        else:
            self._transport.write(data)

    def _cold_read_done(self, data: Bytes | OSError) -> None:
        self._reading = False
        if self._closed:
            return
        if isinstance(data, OSError):
            self._give_up(data)
            return
        self._transport.write(data)
        self._pump()
        if not self.busy:
            self._drained()

    def _send_file(self, piece: Slice) -> None:
        if not piece.is_resident():
            self._send_copy(piece, CHUNK_BYTES)
            return
        try:
            sent = piece.file.sendfile(self._fd, piece.position, len(piece))
        except BlockingIOError:
            sent = 0
        rest = piece.split(sent)[1] if sent else piece
        if rest is not None:
            # The socket is full: the transport sends the next bytes and tells when they are gone.
            self._send_copy(rest, NUDGE_BYTES)

"""The bytes on their way to one socket: data and pieces of files, in order and in bounded parts.

A slow client costs one chunk of memory, not the whole response: pieces of files stay in their files
until the socket takes them. Data in the page cache is sent on the loop, through memory that all
connections share; data that would block the loop is read by a thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeGuard

from headrace.storage.log.slices import Slice

Bytes = bytes | bytearray
Piece = Bytes | Slice

# What a thread reads at a time of data that is not in the page cache.
CHUNK_BYTES = 256 * 1024
# What is sent in one call: a fetch of the usual megabyte with its header.
SCRATCH_BYTES = (1024 + 64) * 1024
# What the transport gets once the socket is full, so that it reports when there is room.
NUDGE_BYTES = 16 * 1024
# Smaller pieces are cheaper to copy and send together with their header.
SENDFILE_BYTES_MIN = 64 * 1024

log = logging.getLogger(__name__)


class ColdReader(Protocol):
    """Reads pieces of files off the loop."""

    def read(self, piece: Slice, done: Callable[[Bytes | OSError], None]) -> None:
        """Call `done` on the loop with the bytes, or with the error."""
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


class SendQueue:
    """The sending half of a connection."""

    __slots__ = (
        "_closed",
        "_drained",
        "_fd",
        "_paused",
        "_queue",
        "_reader",
        "_reading",
        "_scratch",
        "_sendfile",
        "_transport",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: ColdReader,
        scratch: memoryview,
        sendfile: bool,
        drained: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._reader = reader
        # Shared by all connections, and used only within one call.
        self._scratch = scratch
        self._drained = drained  # called when the queue becomes empty
        self._queue: deque[Piece] = deque()
        self._paused = False
        self._reading = False
        self._closed = False
        # With a limit of 0 the transport reports at once that the socket is full, and holds
        # nothing otherwise: memory stays bounded and the socket may be written past it.
        transport.set_write_buffer_limits(high=0)
        encrypted = transport.get_extra_info("ssl_object") is not None
        self._fd = -1 if encrypted else transport.get_extra_info("socket").fileno()
        self._sendfile = sendfile and not encrypted

    @property
    def busy(self) -> bool:
        """Whether something is still on its way."""
        return self._paused or self._reading or bool(self._queue)

    def send(self, pieces: list[Piece]) -> None:
        """Queue pieces and send what the socket takes now."""
        if len(pieces) == 1 and not self.busy:
            only = pieces[0]
            if not isinstance(only, Slice):
                self._transport.write(only)
                return
        self._queue.extend(pieces)
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
        """Drop what was not sent; the peer is gone."""
        self._closed = True
        self._queue.clear()

    def _pump(self) -> None:
        queue = self._queue
        try:
            while queue and not self._paused and not self._reading and not self._closed:
                first = queue[0]
                if not len(first):
                    queue.popleft()  # a partition without records
                elif self._sendfile and is_large(first) and first.is_resident():
                    self._send_file(first)
                else:
                    self._send_gathered()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Hang up: the length of the response is already sent, so it cannot become an error."""
        log.warning("a response is cut short, because its data cannot be sent: %s", error)
        self._queue.clear()
        self._transport.abort()

    def _send_gathered(self) -> None:
        """Send what is queued as far as the scratch memory goes: one copy, one call, one packet."""
        size = self._gather()
        if not size:
            self._read_cold()
        elif self._fd < 0:
            self._hand_over(0, size)
        else:
            try:
                sent = os.write(self._fd, self._scratch[:size])
            except BlockingIOError:
                sent = 0
            self._consume(sent)
            if sent < size:
                # The socket is full: the transport sends the next bytes and reports when they are
                # gone, because uvloop watches its sockets itself.
                self._hand_over(sent, min(size, sent + NUDGE_BYTES))

    def _hand_over(self, start: int, end: int) -> None:
        self._consume(end - start)
        self._transport.write(bytes(self._scratch[start:end]))

    def _gather(self) -> int:
        """Fill the scratch memory from the front of the queue, up to cold data; return its size."""
        scratch = self._scratch
        room = len(scratch)
        filled = 0
        for piece in self._queue:
            wanted = min(len(piece), room - filled)
            place = scratch[filled : filled + wanted]
            if isinstance(piece, Slice):
                if self._sendfile and filled and is_large(piece):
                    break
                count = piece.file.pread_into(place, piece.position)
                filled += count
                if count < wanted:
                    break
            else:
                place[:] = piece[:wanted]
                filled += wanted
            if filled == room:
                break
        return filled

    def _consume(self, count: int) -> None:
        """Remove bytes that were sent from the front of the queue."""
        queue = self._queue
        while count:
            first = queue.popleft()
            if len(first) > count:
                rest = first.split(count)[1] if isinstance(first, Slice) else first[count:]
                assert rest is not None
                queue.appendleft(rest)
                return
            count -= len(first)

    def _read_cold(self) -> None:
        first = self._queue.popleft()
        assert isinstance(first, Slice)
        head, rest = first.split(CHUNK_BYTES)
        if rest is not None:
            self._queue.appendleft(rest)
        self._reading = True
        self._reader.read(head, self._cold_read_done)

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
        try:
            sent = piece.file.sendfile(self._fd, piece.position, len(piece))
        except BlockingIOError:
            sent = 0
        self._consume(sent)
        if sent < len(piece):
            self._send_gathered()


def is_large(piece: Piece) -> TypeGuard[Slice]:
    """Whether `sendfile` for a piece of a file costs less than a copy."""
    return isinstance(piece, Slice) and len(piece) >= SENDFILE_BYTES_MIN

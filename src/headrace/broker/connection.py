"""One client's connection: bytes in, frames to the router, responses back in order.

- Responses leave in the order of their requests.
- A request that must wait blocks those after it. Produces and commits that only wait for a sync
  are the exception, so that a pipelining client shares one sync among its batches.
- Nothing more is read while a request is blocked, the client reads too slowly, or the node is
  full: back-pressure is TCP's.
- A frame is valid only until its API function returns: then its buffer is used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.buffers import SMALL_FRAME_BYTES
from headrace.broker.send_queue import Piece, SendQueue
from headrace.protocol.primitives import ProtocolError

if TYPE_CHECKING:
    from headrace.broker.registry import FastPath
    from headrace.broker.router import Route
    from headrace.broker.server import Server

LENGTH = Struct(">i")
API_KEY = Struct(">h")
# The shortest request header: key, version, correlation id.
FRAME_BYTES_MIN = 8
# Requests of one connection that may wait for a sync at once.
PIPELINE_MAX = 128
# What one connection may do in one turn of the loop.
TURN_REQUESTS_MAX = 256
TURN_BYTES_MAX = 256 * 1024

log = logging.getLogger(__name__)


class ResponseSlot:
    """The place of one response among those of its connection."""

    __slots__ = ("blocks", "connection", "pieces", "ready")

    def __init__(self, connection: Connection, blocks: bool) -> None:
        self.connection = connection
        self.blocks = blocks
        self.ready = False
        self.pieces: list[Piece] = []

    def send(self, pieces: list[Piece]) -> None:
        """Give the response; it leaves after those before it. Does nothing after a hang-up."""
        self.pieces = pieces
        self.ready = True
        self.connection.on_response(self)


class Connection(asyncio.BufferedProtocol):
    """A protocol on a transport; used only on the loop thread."""

    __slots__ = (
        "_blocking",
        "_execute",
        "_finishing",
        "_large",
        "_large_end",
        "_large_filled",
        "_large_view",
        "_parsing",
        "_pool",
        "_reading_paused",
        "_ready",
        "_ready_bytes",
        "_scratch",
        "_send_queue",
        "_server",
        "_slots",
        "_stalled",
        "_tail",
        "_transport",
        "fast_paths",
        "last_tick",
        "peer",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pool = server.pool
        self._scratch = server.scratch
        self._execute = server.router.execute
        self._transport: asyncio.Transport | None = None
        self._send_queue: SendQueue | None = None
        self._tail = bytearray()  # what was received of frames that are not executed yet
        self._large: bytearray | None = None
        self._large_view = memoryview(b"")
        self._large_filled = 0
        self._large_end = 0
        self._slots: deque[ResponseSlot] = deque()
        self._ready: list[bytes | bytearray] = []  # responses of this turn, not yet written
        self._ready_bytes = 0
        self._blocking = 0  # pending responses that block the next request
        self._finishing = False  # the broker stops: respond to what is under way, then hang up
        self._stalled = False  # waiting for room in the node's queues
        self._parsing = False
        self._reading_paused = False
        self.last_tick = server.tick
        self.fast_paths: dict[Route, FastPath[Any]] = {}
        self.peer = ""

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's is one in all but its class
        self._transport = transport
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        refusal = self._server.admit(self, transport)
        if refusal:
            log.warning("connection from %s refused: %s", self.peer, refusal)
            self._server.metrics.connections_refused.value += 1
            transport.abort()
            return
        server = self._server
        self._send_queue = SendQueue(
            transport, server.reader, server.out_scratch, server.use_sendfile, self._drained
        )

    def connection_lost(self, error: Exception | None) -> None:
        self._server.release(self)
        self._transport = None
        if self._send_queue is not None:
            self._send_queue.close()
        if self._large is not None:
            self._large_view.release()
            self._pool.give_back(self._large, self._large_end)
            self._large = None
        self._slots.clear()
        self._tail = bytearray()

    def get_buffer(self, size_hint: int) -> memoryview:
        if self._large is not None:
            return self._large_view[self._large_filled : self._large_end]
        # The scratch buffer is shared: the start of an unfinished small frame is copied to its
        # front, so that the frame ends up in one piece.
        kept = len(self._tail)
        if kept:
            self._scratch[:kept] = self._tail
            return self._scratch[kept:]
        return self._scratch

    def buffer_updated(self, size: int) -> None:
        self.last_tick = self._server.tick
        self._server.metrics.bytes_in.value += size
        large = self._large
        if large is not None:
            self._large_filled += size
            if self._large_filled == self._large_end:
                self._finish_large(large)
            return
        kept = len(self._tail)
        if kept:
            self._tail = bytearray()
        self._parse(self._scratch, kept + size)

    def pause_writing(self) -> None:
        if self._send_queue is not None:
            self._send_queue.pause()

    def resume_writing(self) -> None:
        if self._send_queue is not None:
            self._send_queue.resume()

    def _drained(self) -> None:
        self.proceed()
        self._close_if_finished()

    def _parse(self, view: memoryview, end: int) -> None:
        """Execute the whole frames in `view[:end]` and keep what is left."""
        position = 0
        budget = TURN_REQUESTS_MAX
        self._parsing = True
        self._ready_bytes = 0
        try:
            while end - position >= 4 and not self.blocked:
                (size,) = LENGTH.unpack_from(view, position)
                if size < FRAME_BYTES_MIN or size > self._server.frame_bytes_max:
                    raise ProtocolError(f"frame of {size} bytes")
                stop = position + 4 + size
                if stop > end:
                    if size > SMALL_FRAME_BYTES and self._begin_large(view[position:end], size):
                        position = end
                    break
                if budget == 0 or self._ready_bytes > TURN_BYTES_MAX:
                    # Let other connections have a turn; go on in the next one.
                    self.stall()
                    self._server.loop.call_soon(self.unstall)
                    break
                budget -= 1
                self._execute(self, view, position + 4, stop)
                position = stop
        except ProtocolError as error:
            self.refuse(str(error))
            return
        finally:
            self._parsing = False
            if self._ready:
                self._write_ready()
        if position < end:
            self._tail = bytearray(view[position:end])
        self._regulate()

    def _begin_large(self, start: memoryview, size: int) -> bool:
        """Give a large frame its own buffer; False if there is no room, or no API key yet."""
        if len(start) < 6:
            return False
        self._server.check_frame(size, API_KEY.unpack_from(start, 4)[0])
        if not self._pool.has_room(4 + size):
            self._server.wait_for_room(self)
            return False
        self._large = self._pool.take(4 + size)
        self._large_view = memoryview(self._large)
        self._large_end = 4 + size
        self._large_filled = len(start)
        self._large_view[: len(start)] = start
        return True

    def _finish_large(self, large: bytearray) -> None:
        self._large = None
        self._parsing = True
        try:
            self._execute(self, self._large_view, 4, self._large_end)
        except ProtocolError as error:
            self.refuse(str(error))
        finally:
            self._parsing = False
            self._large_view.release()
            self._pool.give_back(large, self._large_end)
            if self._ready:
                self._write_ready()
        self._regulate()

    def refuse(self, reason: str) -> None:
        """Hang up on a request that is malformed or cannot have the response it needs."""
        log.warning("closing the connection from %s: %s", self.peer, reason)
        self._server.metrics.requests_malformed.value += 1
        self.close()

    def respond(self, data: bytes | bytearray) -> None:
        """Send a response now, or after those that are pending."""
        if self._slots:
            self._line_up([data])
        else:
            self._ready.append(data)
            self._ready_bytes += len(data)
            if not self._parsing:
                self._write_ready()

    def respond_in_pieces(self, pieces: list[Piece]) -> None:
        """Send a response with pieces of files now, or after those that are pending."""
        if self._slots:
            self._line_up(pieces)
        else:
            if self._ready:
                self._write_ready()
            self._send(pieces)

    def _line_up(self, pieces: list[Piece]) -> None:
        """Queue a finished response after pending ones."""
        slot = ResponseSlot(self, False)
        slot.pieces = pieces
        slot.ready = True
        self._slots.append(slot)

    def respond_later(self, *, blocks: bool) -> ResponseSlot:
        """Keep the place of a response that comes later."""
        slot = ResponseSlot(self, blocks)
        self._slots.append(slot)
        if blocks:
            self._blocking += 1
        return slot

    def on_response(self, slot: ResponseSlot) -> None:
        """A pending response is there: write all that may leave now."""
        if self._transport is None:
            return
        if slot.blocks:
            self._blocking -= 1
        slots = self._slots
        while slots and slots[0].ready:
            first = slots.popleft()
            if self._send_queue is None:
                return
            if len(first.pieces) == 1 and isinstance(first.pieces[0], bytes | bytearray):
                self._ready.append(first.pieces[0])
            else:
                if self._ready:
                    self._write_ready()
                self._send(first.pieces)
        if not self._parsing:
            if self._ready:
                self._write_ready()
            # Else nothing came in the meantime, and reading continues.
            if self._tail or self._reading_paused or slots:
                self.proceed()
            self._close_if_finished()

    def _write_ready(self) -> None:
        ready = self._ready
        self._ready = []
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self._send([data])

    def _send(self, pieces: list[Piece]) -> None:
        if self._send_queue is not None:
            self._server.metrics.bytes_out.value += sum(map(len, pieces))
            self._send_queue.send(pieces)

    @property
    def blocked(self) -> bool:
        """Whether the next request must not be executed now."""
        return bool(
            self._blocking
            or self._stalled
            or self._finishing
            or self._transport is None
            or (self._send_queue is not None and self._send_queue.busy)
            or len(self._slots) >= PIPELINE_MAX
        )

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return not self._slots and (self._send_queue is None or not self._send_queue.busy)

    @property
    def is_mid_frame(self) -> bool:
        """Whether a large frame has begun and not ended."""
        return self._large is not None

    def stall(self) -> None:
        """Read no more until `unstall`: the node's queues are full."""
        self._stalled = True

    def unstall(self) -> None:
        """There is room again."""
        self._stalled = False
        self.proceed()

    def proceed(self) -> None:
        """Execute what was received while requests were blocked, then read on."""
        if self._parsing or self._transport is None or self.blocked:
            return
        if self._tail and self._large is None:
            tail = self._tail
            self._tail = bytearray()
            self._parse(memoryview(tail), len(tail))
        else:
            self._regulate()

    def _regulate(self) -> None:
        """Read from the socket while the next request may be executed.

        While a request blocks, reading stops only once more has come: a client that waits for its
        response seldom sends more, and pausing and resuming costs two system calls.
        """
        transport = self._transport
        if transport is None:
            return
        if self._blocking and not self._tail and not self._reading_paused and not self._finishing:
            return
        if self.blocked or (self._large is None and self._server.queue_full(self)):
            if not self._reading_paused:
                self._reading_paused = True
                transport.pause_reading()
        elif self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def finish(self) -> None:
        """Execute nothing more, and hang up once the responses under way have left."""
        self._finishing = True
        self._regulate()
        self._close_if_finished()

    def _close_if_finished(self) -> None:
        if self._finishing and self.idle:
            self.close()

    def close(self) -> None:
        """Hang up; responses that are written already still leave."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

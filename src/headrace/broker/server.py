"""The listening side of a node: start -> serve -> drain -> close."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

from headrace.broker.buffers import BufferPool
from headrace.broker.connection import Connection
from headrace.broker.registry import APIS
from headrace.broker.router import Router
from headrace.broker.send_queue import SCRATCH_BYTES, ThreadReader
from headrace.config import Endpoint
from headrace.protocol.primitives import ProtocolError

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.ports import Hooks

# How long a closing node waits for responses under way.
DRAIN_SECONDS = 5.0
DRAIN_POLL_SECONDS = 0.005
TICK_SECONDS = 1.0
# How soon a connection that waits for room in the queues tries again.
RETRY_SECONDS = 0.001
# A client that stops in the middle of a large frame holds memory that others may need.
FRAME_STALL_TICKS = 30
# A request without records that is larger is a mistake or an attack: to decode a hundred megabytes
# of tiny elements would stop the loop for minutes.
CONTROL_FRAME_BYTES_MAX = 4 * 1024 * 1024

log = logging.getLogger(__name__)


class ListenError(OSError):
    """The broker cannot listen on an address; the error says which, and what to do."""


class Server:
    """Accepts connections within limits and owns what they share."""

    def __init__(self, node: Node, hooks: Hooks | None = None) -> None:
        settings = node.settings
        self.metrics = node.metrics
        self.router = Router(node, hooks)
        self.pool = BufferPool(settings.int("queued.max.request.bytes"))
        self.scratch = memoryview(self.pool.scratch)
        self.frame_bytes_max = settings.int("socket.request.max.bytes")
        self.use_sendfile = settings.bool("headrace.sendfile")
        self.out_scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.reader = ThreadReader(node.loop, node.read_pool, self._count_cold_read)
        self.tick = 0
        self._node = node
        self.loop = node.loop
        idle_ms = settings.int("connections.max.idle.ms")
        self._idle_ticks = max(1, idle_ms // 1000) if idle_ms >= 0 else 0
        self._connections_max = settings.int("max.connections")
        self._per_ip_max = settings.int("max.connections.per.ip")
        self._per_ip_overrides = {
            host: int(count)
            for host, _, count in (
                text.rpartition(":") for text in settings.list("max.connections.per.ip.overrides")
            )
        }
        self._backlog = settings.int("socket.listen.backlog.size")
        self._requests_max = settings.int("queued.max.requests")
        self._send_buffer = settings.int("socket.send.buffer.bytes")
        self._receive_buffer = settings.int("socket.receive.buffer.bytes")
        self._connections: set[Connection] = set()
        self._per_ip: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._draining = False

    async def start(self, endpoint: Endpoint) -> tuple[str, int]:
        """Listen, and return the address that was bound."""
        host = endpoint.host or None
        try:
            self._listener = await self.loop.create_server(
                lambda: Connection(self), host, endpoint.port, backlog=self._backlog
            )
        except OSError as error:
            reason = error.strerror or str(error)
            hint = ""
            if error.errno == errno.EADDRINUSE:
                hint = "; another program listens there: stop it or choose another --listen"
            raise ListenError(
                error.errno, f"cannot listen on {endpoint.host}:{endpoint.port}: {reason}{hint}"
            ) from error
        self._ticker = self.loop.call_later(TICK_SECONDS, self._on_tick)
        bound = self._listener.sockets[0].getsockname()
        return endpoint.host or bound[0], bound[1]

    async def drain(self) -> None:
        """Accept and read no more; let the responses under way leave, within `DRAIN_SECONDS`."""
        self._draining = True
        if self._listener is not None:
            self._listener.close()
        if self._ticker is not None:
            self._ticker.cancel()
        for connection in tuple(self._connections):
            connection.finish()
        # Fetches need not wait for data that this broker will not accept any more.
        self._node.fetch_purgatory.expire_all()
        deadline = self.loop.time() + DRAIN_SECONDS
        while self._connections and self.loop.time() < deadline:
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def close(self) -> None:
        """Close every connection."""
        self.router.cancel()
        for connection in tuple(self._connections):
            connection.abort()
        await self.router.drain()
        if self._listener is not None:
            self._listener.close()
        self.scratch.release()

    def admit(self, connection: Connection, transport: asyncio.Transport) -> str | None:
        """Accept a connection and return None, or return why not."""
        if self._draining:
            return "the broker is stopping"
        if len(self._connections) >= self._connections_max:
            return f"max.connections={self._connections_max} are open"
        per_ip_max = self._per_ip_overrides.get(connection.peer, self._per_ip_max)
        if self._per_ip[connection.peer] >= per_ip_max:
            return f"max.connections.per.ip={per_ip_max} are open from there"
        self._connections.add(connection)
        self._per_ip[connection.peer] += 1
        self.metrics.connections.value += 1
        sock = transport.get_extra_info("socket")
        if self._send_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        if self._receive_buffer > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        return None

    def release(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._waiting.pop(connection, None)
            self.metrics.connections.value -= 1
            self._per_ip[connection.peer] -= 1
            if not self._per_ip[connection.peer]:
                del self._per_ip[connection.peer]

    def queue_full(self, connection: Connection) -> bool:
        """Whether this connection must wait until the node holds fewer requests."""
        # Each connection may always have one request of its own under way.
        if self._node.produce_purgatory.size < self._requests_max or connection.idle:
            return False
        self.wait_for_room(connection)
        return True

    def wait_for_room(self, connection: Connection) -> None:
        """Stall a connection until there is room."""
        connection.stall()
        if not self._waiting:
            self.loop.call_later(RETRY_SECONDS, self._retry)
        self._waiting[connection] = None

    def check_frame(self, size: int, api_key: int) -> None:
        """Raise ProtocolError for a frame that is too large for its API."""
        limit = self.frame_bytes_max
        api = APIS.get(api_key)
        if api is None or not api.receives_records:
            limit = min(limit, CONTROL_FRAME_BYTES_MAX)
        if size > limit:
            raise ProtocolError(f"frame of {size} bytes for API {api_key}; the limit is {limit}")

    def _retry(self) -> None:
        """Let stalled connections try again."""
        waiting = tuple(self._waiting)
        self._waiting.clear()
        for connection in waiting:
            connection.unstall()  # it waits again if there is still no room

    def _on_tick(self) -> None:
        self.tick += 1
        self._ticker = self.loop.call_later(TICK_SECONDS, self._on_tick)
        if self.tick % max(1, min(self._idle_ticks // 4, FRAME_STALL_TICKS // 2)) == 0:
            self._reap()

    def _reap(self) -> None:
        """Close connections without traffic for `connections.max.idle.ms`."""
        oldest = self.tick - self._idle_ticks if self._idle_ticks else 0
        for connection in tuple(self._connections):
            if (connection.last_tick < oldest and connection.idle) or (
                connection.is_mid_frame and connection.last_tick < self.tick - FRAME_STALL_TICKS
            ):
                self.metrics.connections_reaped.value += 1
                connection.abort()

    def _count_cold_read(self) -> None:
        self.metrics.cold_reads.value += 1

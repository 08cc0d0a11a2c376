"""Connections as TCP gives them: bytes in order, late, until one side hangs up or the line is cut.

What was sent before a hang-up still arrives, unless the line was cut. A cut may be noticed at once
by either side, or by nobody until a request times out. Nothing arrives twice and nothing overtakes
anything on one connection; repetition and reordering come from clients that try again on another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

from tests.simulation.world import Process, World

# How long a side takes to notice that a line is dead, if it notices.
NOTICE_US_MAX = 300_000


class Network:
    """All lines to the one address that brokers listen on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server: Process | None = None
        # Latency, least and most; most messages take little more than the least.
        self.delay_us = (50, 1_500)
        self.lines: list[Line] = []

    def connect(self, client: Process) -> Line | None:
        """A new line to the broker; None if nobody listens."""
        server = self.server
        if server is None or not server.alive or server.listener is None:
            return None
        self.lines = [line for line in self.lines if not line.is_over]
        line = Line(self, client, server)
        self.lines.append(line)
        return line


class Line:
    """One connection: a client's end with callbacks, a server's end that is a transport."""

    def __init__(self, network: Network, client: Process, server: Process) -> None:
        self.network = network
        self.world = network.world
        self.client = client
        self.server = server
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_lost: Callable[[], None] = lambda: None
        # Of its own, so that the order in which lines are closed decides nothing.
        self._chance = Random(network.world.chance.getrandbits(32))
        # Cut: what is under way never arrives.
        self.is_cut = False
        self._client_open = True
        self._transport = Transport(self)
        # When the last bytes under way arrive, in each direction.
        self._to_server_us = 0
        self._to_client_us = 0
        client.on_death.append(self._client_died)
        server.on_death.append(self._server_died)
        self._server_does(self._transport.accept)

    @property
    def is_over(self) -> bool:
        """Whether nobody uses it any more."""
        return not self._client_open and not self._transport.is_open

    # The client's side.

    def send(self, data: bytes) -> None:
        """Send bytes to the server."""
        if self._client_open:
            self._server_does(self._transport.receive, data)

    def hang_up(self) -> None:
        """The client is done with it; what it has sent still arrives."""
        if self._client_open:
            self._client_open = False
            self._server_does(self._transport.end)

    def _client_lost(self) -> None:
        if self._client_open:
            self._client_open = False
            self.on_lost()

    def _client_died(self) -> None:
        # The kernel hangs up for a process that is killed; a machine that loses power does not.
        if self.world.happens(0.8):
            self.hang_up()
        self._client_open = False

    # The server's side.

    def to_client(self, data: bytes) -> None:
        """Bytes from the server."""
        self._client_does(self._client_receives, data)

    def server_hung_up(self) -> None:
        """The server closed its end."""
        self._client_does(self._client_lost)

    def _client_receives(self, data: bytes) -> None:
        if self._client_open:
            self.on_data(data)

    def _server_died(self) -> None:
        self._transport.is_open = False
        self.is_cut = True
        if self.world.happens(0.9):
            self.client.after_us(self.world.between(0, NOTICE_US_MAX), self._client_lost)

    # The line.

    def cut(self) -> None:
        """Lose what is under way, and let each side notice that, or not."""
        self.is_cut = True
        if self.world.happens(0.7):
            self.client.after_us(self.world.between(0, NOTICE_US_MAX), self._client_lost)
        if self.world.happens(0.7):
            self.server.after_us(self.world.between(0, NOTICE_US_MAX), self._transport.end)

    def fall(self) -> None:
        """A line that was cut is noticed by both sides now."""
        self.client.call_soon(self._client_lost)
        self.server.call_soon(self._transport.end)

    def _latency_us(self) -> int:
        least, most = self.network.delay_us
        return least + int((most - least) * self._chance.random() ** 4)

    def _server_does(self, deed: Callable[..., None], *args: Any) -> None:
        world = self.world
        arrival_us = max(self._to_server_us, world.now_us + self._latency_us())
        self._to_server_us = arrival_us
        self.server.after_us(arrival_us - world.now_us, self._arrive, deed, *args)

    def _client_does(self, deed: Callable[..., None], *args: Any) -> None:
        world = self.world
        arrival_us = max(self._to_client_us, world.now_us + self._latency_us())
        self._to_client_us = arrival_us
        self.client.after_us(arrival_us - world.now_us, self._arrive, deed, *args)

    def _arrive(self, deed: Callable[..., None], *args: Any) -> None:
        if not self.is_cut:
            deed(*args)


class Transport(asyncio.Transport):
    """The broker's end of a line, as asyncio would hand it to a protocol."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self._protocol: asyncio.BufferedProtocol | None = None
        self._paused = False
        self._received = bytearray()
        self._ended = False
        self.is_open = True

    def accept(self) -> None:
        """A client has connected."""
        listener = self._line.server.listener
        if listener is None:
            self.is_open = False
            self._line.server_hung_up()
            return
        self._protocol = cast(asyncio.BufferedProtocol, listener())
        self._protocol.connection_made(self)

    def receive(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.is_open:
            self._received += data
            self._feed()

    def end(self) -> None:
        """The client hung up, or the kernel found the line dead."""
        self._ended = True
        self._feed()

    def _feed(self) -> None:
        protocol = self._protocol
        while self._received and not self._paused and self.is_open and protocol is not None:
            buffer = memoryview(protocol.get_buffer(len(self._received)))
            size = min(len(buffer), len(self._received))
            buffer[:size] = self._received[:size]
            del self._received[:size]
            protocol.buffer_updated(size)
        if self._ended and not self._received:
            self._lose()

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            if self._protocol is not None:
                self._line.server.call_soon(self._protocol.connection_lost, None)

    # What a protocol asks of a transport.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self.is_open:
            self._line.to_client(bytes(data))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._received or self._ended:
            self._line.server.call_soon(self._feed)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The line takes everything at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self  # as over TLS, everything goes through `write`
        return ("10.0.0.1", 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        if self.is_open:
            self._line.server_hung_up()
            self._lose()

    def abort(self) -> None:
        self.close()

"""A client's side of the wire: frames over one line at a time, answers or a lost request."""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import TypeVar

from tests.simulation.network import Line, Network
from tests.simulation.world import Process, World

from headrace.protocol.api import RESPONSES
from headrace.protocol.codec import decode, encode
from headrace.protocol.headers import request_header_version, response_header_version
from headrace.protocol.schema import Message

ResponseT = TypeVar("ResponseT", bound=Message)

LENGTH = Struct(">i")
# API key, version, correlation id and the length of the client id.
HEADER = Struct(">hhih")
CORRELATION = Struct(">ii")
RETRY_MS = (20, 400)


class Lost(Exception):
    """No answer came: the request may have been executed, may never be, or may yet be."""


class Client:
    """Sends requests in order over one line, and makes a new line when the old one is lost."""

    def __init__(self, process: Process, network: Network) -> None:
        self.process = process
        self.world: World = process.world
        self.name = process.name
        self._name = process.name.encode()
        self._network = network
        self._line: Line | None = None
        self._buffer = bytearray()
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._correlation_id = 0

    async def ask(
        self,
        request: Message,
        response: type[ResponseT],
        version: int,
        timeout_ms: int = 5_000,
    ) -> ResponseT:
        """Send a request and wait for its answer; Lost if none comes."""
        line = self._connected()
        api_key = request.API_KEY
        assert api_key is not None
        assert RESPONSES[api_key] is response
        self._correlation_id += 1
        correlation_id = self._correlation_id
        flexible = request_header_version(api_key, version) == 2
        header = HEADER.pack(api_key, version, correlation_id, len(self._name)) + self._name
        body = header + (b"\0" if flexible else b"") + encode(request, version)
        answered: asyncio.Future[bytes] = self.process.create_future()
        self._waiting.append((correlation_id, answered))
        tell = self.world.tell
        tell(self.name, f"#{correlation_id} asks v{version}", request)
        line.send(LENGTH.pack(len(body)) + body)
        alarm = self.process.after_us(timeout_ms * 1000, self._time_out, line, answered)
        try:
            frame = await answered
        except Lost:
            tell(self.name, f"#{correlation_id} hears nothing")
            raise
        alarm.cancel()
        offset = 8 + response_header_version(api_key, version)
        answer = decode(response, version, frame, offset)
        tell(self.name, f"#{correlation_id} hears", answer)
        return answer

    async def pause(self, least_ms: int = RETRY_MS[0], most_ms: int = RETRY_MS[1]) -> None:
        """Wait a while before trying again."""
        await asyncio.sleep(self.world.between(least_ms, most_ms) / 1000)

    def close(self) -> None:
        """Hang up; the next request makes a new line."""
        if self._line is not None:
            self._line.hang_up()
            self._lose(self._line)

    def _connected(self) -> Line:
        if self._line is None:
            line = self._network.connect(self.process)
            if line is None:
                raise Lost("connection refused")
            line.on_data = self._receive
            line.on_lost = lambda: self._lose(line)
            self._line = line
            self._buffer.clear()
        return self._line

    def _lose(self, line: Line) -> None:
        if line is self._line:
            self._line = None
            waiting = list(self._waiting)
            self._waiting.clear()
            for _, answered in waiting:
                if not answered.done():
                    answered.set_exception(Lost("the connection is gone"))

    def _time_out(self, line: Line, answered: asyncio.Future[bytes]) -> None:
        if not answered.done():
            line.hang_up()
            self._lose(line)

    def _receive(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            size, correlation_id = CORRELATION.unpack_from(self._buffer)
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[: 4 + size])
            del self._buffer[: 4 + size]
            expected, answered = self._waiting.popleft()
            assert expected == correlation_id, "answers come in the order of their requests"
            if not answered.done():
                answered.set_result(frame)

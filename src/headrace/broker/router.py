"""Finds the API of a request frame, calls its function, and frames the response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.ports import Delay, Drop, Fail, Hooks
from headrace.broker.purgatory import Pending
from headrace.broker.registry import APIS, Api, Context
from headrace.broker.send_queue import Piece
from headrace.protocol.api import RESPONSES
from headrace.protocol.codec import decoder, encoder, segments
from headrace.protocol.error_responses import failed_response
from headrace.protocol.errors import ErrorCode
from headrace.protocol.headers import decode_request_header, response_header
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, ResponseSlot
    from headrace.broker.node import Node

KEY_AND_VERSION = Struct(">hh")
LENGTH_AND_CORRELATION = Struct(">ii")

log = logging.getLogger(__name__)


class Route:
    """One version of one API: its codecs, its function and its histogram, looked up once."""

    __slots__ = (
        "api_key",
        "decode",
        "encode",
        "fast_path",
        "function",
        "prefix",
        "receives_records",
        "record_ns",
        "response",
        "sends_records",
        "version",
        "wants_response",
    )

    def __init__(self, api: Api, version: int, node: Node) -> None:
        self.api_key = api.api_key
        self.version = version
        self.function = api.function
        self.receives_records = api.receives_records
        self.sends_records = api.sends_records
        self.wants_response = api.wants_response
        self.response: type[Message] = RESPONSES[api.api_key]
        self.decode: Callable[[Buffer, int, int], tuple[Any, int]] = decoder(api.request, version)
        self.encode: Callable[[Any, bytearray], object] = encoder(self.response, version)
        # Room for the length and the header.
        self.prefix = bytes(4) + response_header(api.api_key, version, 0)
        fast_path = api.fast_path
        if fast_path is not None and version < fast_path.VERSION_MIN:
            fast_path = None
        self.fast_path = fast_path
        self.record_ns = node.metrics.request_ns(self.api_key, version).record

    def frame(self, correlation_id: int, response: Message) -> bytearray:
        """The frame of a response."""
        frame = bytearray(self.prefix)
        self.encode(response, frame)
        LENGTH_AND_CORRELATION.pack_into(frame, 0, len(frame) - 4, correlation_id)
        return frame

    def pieces(self, correlation_id: int, response: Message) -> list[Piece]:
        """The frame of a response in pieces: records stay in their files."""
        pieces: list[Piece] = segments(response, self.version)
        frame = bytearray(self.prefix)
        length = len(frame) - 4 + sum(map(len, pieces))
        LENGTH_AND_CORRELATION.pack_into(frame, 0, length, correlation_id)
        frame += pieces[0]  # type: ignore[arg-type]  # the first piece is never records
        pieces[0] = frame
        return pieces

    def failure(self, request: Message, error: ErrorCode) -> Message:
        """The response to a request that failed.

        Raises ProtocolError, which hangs up, if the client reads no response to it.
        """
        if not self.wants_response(request):
            raise ProtocolError(f"a request that wants no response failed: {error.name}")
        return failed_response(request, self.response, self.version, error)

    def respond_later(
        self, connection: Connection, correlation_id: int, pending: Pending, started_ns: int
    ) -> None:
        """Send a response once it is there, in the order of the connection's requests."""
        slot = connection.respond_later(blocks=pending.blocks)

        def resolved(pending: Pending) -> None:
            if pending.response is not None:
                self.send(correlation_id, pending.response, slot, started_ns)

        pending.on_resolved(resolved)

    def send(
        self, correlation_id: int, response: Message, slot: ResponseSlot, started_ns: int
    ) -> None:
        """Send a response in the place that was kept for it."""
        try:
            pieces: list[Piece]
            if self.sends_records:
                pieces = self.pieces(correlation_id, response)
            else:
                pieces = [self.frame(correlation_id, response)]
        except Exception:
            # No response can be encoded that the client could read, so hang up.
            log.exception("the response of API %d v%d has no encoding", self.api_key, self.version)
            slot.connection.abort()
            return
        slot.send(pieces)
        self.record_ns(perf_counter_ns() - started_ns)


class Router:
    """Routes the frames of all connections of one server."""

    def __init__(self, node: Node, hooks: Hooks | None = None) -> None:
        self._node = node
        self._hooks = hooks
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def execute(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Serve one request; its response goes to the connection now or later.

        Raises ProtocolError for a malformed frame; the connection then hangs up.
        """
        started_ns = perf_counter_ns()
        key, version = KEY_AND_VERSION.unpack_from(view, start)
        route = self._routes.get(key << 16 | version)
        if route is None:
            route = self._find(key, version)
        fast_path = None
        if route.fast_path is not None:
            fast_path = connection.fast_paths.get(route)
            if fast_path is not None and fast_path.take(connection, view, start, end, started_ns):
                return
        # A header's version is its API version's, so it can be read only once that is known.
        _, _, correlation_id, client_id, body = decode_request_header(view, start, end)
        # Bytes after the request in its frame are ignored, as in Kafka: librdkafka 2.16 leaves
        # three bytes behind when it asks for the metadata of all topics.
        if route.receives_records:
            request, _ = route.decode(view, body, end)
        else:
            # Python decodes bytes much faster than a view of them.
            request, _ = route.decode(bytes(view[body:end]), 0, end - body)
        context = Context(key, version, client_id, connection.peer)
        if self._hooks is not None and self._intercept(
            connection, route, context, request, correlation_id, view[body:end]
        ):
            return
        try:
            result = route.function(self._node, context, request)
            if route.fast_path is not None and self._hooks is None:
                if fast_path is None:
                    fast_path = connection.fast_paths[route] = route.fast_path(self._node, route)
                fast_path.learn(request, view, start, body, end)
            if isinstance(result, Message):
                if route.sends_records:
                    connection.respond_in_pieces(route.pieces(correlation_id, result))
                else:
                    connection.respond(route.frame(correlation_id, result))
                route.record_ns(perf_counter_ns() - started_ns)
                return
        except ProtocolError:
            raise
        except Exception:
            log.exception("API %d v%d failed", key, version)
            result = route.failure(request, ErrorCode.UNKNOWN_SERVER_ERROR)
            connection.respond(route.frame(correlation_id, result))
            return
        if isinstance(result, Pending):
            route.respond_later(connection, correlation_id, result, started_ns)
        elif result is not None:
            slot = connection.respond_later(blocks=True)
            self._spawn(self._finish(route, correlation_id, request, result, slot, started_ns))

    async def drain(self) -> None:
        """Wait for the API functions under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Stop the API functions under way; their clients get no response."""
        for task in self._tasks:
            task.cancel()

    def _find(self, key: int, version: int) -> Route:
        api = APIS.get(key)
        if api is None:
            raise ProtocolError(f"unknown API key {key}")
        if api.version_min <= version <= api.version_max:
            route = self._routes[key << 16 | version] = Route(api, version, self._node)
            return route
        unsupported = api.unsupported
        if unsupported is None:
            raise ProtocolError(f"unsupported version {version} of API {key}")
        # The body is not decoded: its format is unknown.
        route = Route(api, 0, self._node)
        route.function = lambda node, context, request: unsupported()
        route.decode = lambda view, body, end: (None, end)
        return route

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self,
        route: Route,
        correlation_id: int,
        request: Message,
        result: Awaitable[Message | None],
        slot: ResponseSlot,
        started_ns: int,
    ) -> None:
        try:
            try:
                response = await result
            except asyncio.CancelledError:
                slot.connection.abort()
                raise
            except ProtocolError:
                raise
            except Exception:
                log.exception("API %d v%d failed", route.api_key, route.version)
                response = route.failure(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        except ProtocolError as error:
            slot.connection.refuse(str(error))
            return
        if response is None:
            slot.send([])  # a produce with acks=0 that had to wait: the client wants no response
        else:
            route.send(correlation_id, response, slot, started_ns)

    def _intercept(
        self,
        connection: Connection,
        route: Route,
        context: Context,
        request: Message,
        correlation_id: int,
        body: memoryview,
    ) -> bool:
        """Ask the fault hooks; True if they took the request over."""
        assert self._hooks is not None
        action = self._hooks.on_request(context.api_key, context.api_version, context.client_id)
        if isinstance(action, Drop):
            connection.abort()
            return True
        if isinstance(action, Fail):
            response = route.failure(request, action.error)
            connection.respond(route.frame(correlation_id, response))
            return True
        if isinstance(action, Delay):
            slot = connection.respond_later(blocks=True)
            # The receive buffer is reused before the delay is over: keep a copy of the request.
            copy = bytearray(body)
            request = route.decode(memoryview(copy), 0, len(copy))[0]
            delayed = self._delayed(route, context, request, action.seconds)
            self._spawn(
                self._finish(route, correlation_id, request, delayed, slot, perf_counter_ns())
            )
            return True
        return False

    async def _delayed(
        self, route: Route, context: Context, request: Any, seconds: float
    ) -> Message | None:
        await asyncio.sleep(seconds)
        result = route.function(self._node, context, request)
        if isinstance(result, Pending):
            return await result.wait()
        if result is None or isinstance(result, Message):
            return result
        response: Message | None = await result
        return response

"""From a frame to its handler and from the handler's answer to a frame."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.apis.produce import ACKS_ALL, park, refuse
from headrace.broker.commit_templates import VERSION_MIN as COMMIT_LANE_VERSION_MIN
from headrace.broker.commit_templates import CommitLanes
from headrace.broker.context import Context
from headrace.broker.failures import failed_response
from headrace.broker.pending import Pending
from headrace.broker.ports import Delay, Drop, Fail, Hooks
from headrace.broker.produce_templates import CORRELATION_AT, Lane, Lanes
from headrace.broker.produce_templates import VERSION_MIN as LANE_VERSION_MIN
from headrace.broker.registry import HANDLERS, Handler
from headrace.broker.send_queue import Segment
from headrace.protocol.api import RESPONSES
from headrace.protocol.api.fetch import FetchResponse
from headrace.protocol.api.offset_commit import OffsetCommitRequest
from headrace.protocol.api.produce import ProduceRequest
from headrace.protocol.codec import decoder, encoder, segments
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.headers import decode_request_header
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.protocol.schema import Message
from headrace.storage import AppendInfo

if TYPE_CHECKING:
    from headrace.broker.connection import Connection, Reply
    from headrace.broker.node import Node

KEY_AND_VERSION = Struct(">hh")
LENGTH_AND_CORRELATION = Struct(">ii")
CORRELATION = Struct(">i")
NOT_APPENDED = AppendInfo(-1, -1, -1, -1)
API_VERSIONS_KEY = 18

log = logging.getLogger(__name__)


class Route:
    """One (API, version): its codecs, its handler, its histogram, looked up once."""

    __slots__ = (
        "api_key",
        "decode",
        "encode",
        "function",
        "keeps_view",
        "prefix",
        "record_ns",
        "response",
        "splits",
        "takes_commit_lanes",
        "takes_lanes",
        "version",
    )

    def __init__(self, handler: Handler, version: int, node: Node) -> None:
        self.api_key = handler.api_key
        self.version = version
        self.function = handler.function
        self.response: type[Message] = RESPONSES[handler.api_key]
        self.decode: Callable[[Buffer, int, int], tuple[Any, int]] = decoder(
            handler.request, version
        )
        self.encode: Callable[[Any, bytearray], object] = encoder(self.response, version)
        # Length, correlation id and, in flexible versions, the empty tagged fields of the
        # response header, which ApiVersions never has (KIP-511).
        flexible = version >= self.response.FLEXIBLE and handler.api_key != API_VERSIONS_KEY
        self.prefix = bytes(9 if flexible else 8)
        self.takes_lanes = handler.request is ProduceRequest and version >= LANE_VERSION_MIN
        self.takes_commit_lanes = (
            handler.request is OffsetCommitRequest and version >= COMMIT_LANE_VERSION_MIN
        )
        # A produce's records stay where they were received.
        self.keeps_view = handler.request is ProduceRequest
        self.splits = self.response is FetchResponse
        self.record_ns = node.metrics.request_ns(self.api_key, version).record


class Dispatcher:
    """Finds the route of a frame, runs its handler and frames the answer."""

    def __init__(self, node: Node, hooks: Hooks | None = None) -> None:
        self._node = node
        self._hooks = hooks
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def execute(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """Serve one request; its answer goes to the connection now or later.

        Raises ProtocolError for a frame that makes no sense: the connection hangs up.
        """
        started_ns = perf_counter_ns()
        key, version = KEY_AND_VERSION.unpack_from(view, start)
        route = self._routes.get(key << 16 | version)
        if route is None:
            route = self._find(key, version)
        lanes = connection.lanes
        if lanes is not None and lanes.route is route:
            found = lanes.find(view, start, end)
            if found is not None:
                self._produce(connection, route, view, start, *found, started_ns)
                return
        elif route.takes_commit_lanes:
            commits = connection.commit_lanes
            if (
                commits is not None
                and commits.route is route
                and commits.take(connection, view, start, end, started_ns)
            ):
                return
        # A header's version is its API version's, so it can be read only once that is known.
        _, _, correlation_id, client_id, body = decode_request_header(view, start, end)
        # What follows the request in its frame is ignored, as Kafka does: librdkafka 2.16 leaves
        # three bytes behind when it asks for the metadata of all topics.
        if route.keeps_view:
            request, _ = route.decode(view, body, end)
        else:
            # Python takes bytes apart much faster than a view of them.
            request, _ = route.decode(bytes(view[body:end]), 0, end - body)
        context = Context(key, version, client_id, connection.peer)
        if self._hooks is not None and self._intercept(
            connection, route, context, request, correlation_id, view[body:end]
        ):
            return
        try:
            answer = route.function(self._node, context, request)
            if route.takes_lanes and self._hooks is None:
                if lanes is None or lanes.route is not route:
                    lanes = connection.lanes = Lanes(route)
                lanes.learn(request, self._node.partitions, view, start, end)
            elif route.takes_commit_lanes and self._hooks is None:
                commits = connection.commit_lanes
                if commits is None or commits.route is not route:
                    commits = connection.commit_lanes = CommitLanes(self._node, route)
                commits.learn(request, view, start, body, end)
            if isinstance(answer, Message):
                if route.splits:
                    connection.answer_segments(self._split(route, correlation_id, answer))
                else:
                    connection.answer(self._frame(route, correlation_id, answer))
                route.record_ns(perf_counter_ns() - started_ns)
                return
        except ProtocolError:
            raise
        except Exception:
            log.exception("the handler of API %d v%d failed", key, version)
            answer = self._failure(route, request)
            connection.answer(self._frame(route, correlation_id, answer))
            return
        if isinstance(answer, Pending):
            self._answer_later(connection, route, correlation_id, answer, started_ns)
        elif answer is not None:
            reply = connection.answer_later(holds_line=True)
            self._spawn(self._finish(route, correlation_id, request, answer, reply, started_ns))

    def _produce(
        self,
        connection: Connection,
        route: Route,
        view: memoryview,
        start: int,
        lane: Lane,
        batch: memoryview,
        started_ns: int,
    ) -> None:
        """Serve a produce that takes a lane: `handlers/produce.py` for one batch, undecoded."""
        (correlation_id,) = CORRELATION.unpack_from(view, start + CORRELATION_AT)
        partition = lane.partition
        try:
            info = partition.append(batch, self._node.clock.now_ms())
        except KafkaError as error:
            response = lane.response(NOT_APPENDED)
            refuse(response.responses[0].partition_responses[0], error.code, error.message)
            connection.answer(self._frame(route, correlation_id, response))
            return
        if lane.acks == ACKS_ALL and partition.log.high_watermark <= info.last_offset:
            response = lane.response(info)
            result = response.responses[0].partition_responses[0]
            target = (partition, info.last_offset + 1, result)
            pending = Pending(holds_line=False)
            park(self._node, lane.request, [target], response, pending)
            self._answer_later(connection, route, correlation_id, pending, started_ns)
            return
        connection.answer(lane.frame(correlation_id, info))
        route.record_ns(perf_counter_ns() - started_ns)

    def _answer_later(
        self,
        connection: Connection,
        route: Route,
        correlation_id: int,
        pending: Pending,
        started_ns: int,
    ) -> None:
        reply = connection.answer_later(holds_line=pending.holds_line)

        def resolved(pending: Pending) -> None:
            if pending.response is not None:
                self._send(route, correlation_id, pending.response, reply, started_ns)

        pending.on_resolved(resolved)

    async def drain(self) -> None:
        """Wait for the handlers under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Stop the handlers under way; their clients get no answer."""
        for task in self._tasks:
            task.cancel()

    def _find(self, key: int, version: int) -> Route:
        handler = HANDLERS.get(key)
        if handler is None:
            raise ProtocolError(f"unknown API key {key}")
        if not handler.version_min <= version <= handler.version_max:
            if key != API_VERSIONS_KEY:
                raise ProtocolError(f"unsupported version {version} of API {key}")
            # A client from the future asks with its own newest version and is told ours, in the
            # oldest format (KIP-511). The body is not read: nobody knows its shape.
            route = Route(handler._replace(function=_too_new), 0, self._node)
            route.decode = lambda view, body, end: (None, end)
            return route
        route = Route(handler, version, self._node)
        self._routes[key << 16 | version] = route
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
        answer: Awaitable[Message | None],
        reply: Reply,
        started_ns: int,
    ) -> None:
        try:
            response = await answer
        except asyncio.CancelledError:
            reply.connection.abort()
            raise
        except Exception:
            log.exception("the handler of API %d v%d failed", route.api_key, route.version)
            response = self._failure(route, request)
        if response is None:
            reply.send([])  # a produce with acks=0 that had to wait: nothing leaves
        else:
            self._send(route, correlation_id, response, reply, started_ns)

    def _send(
        self, route: Route, correlation_id: int, response: Message, reply: Reply, started_ns: int
    ) -> None:
        try:
            pieces: list[Segment]
            if route.splits:
                pieces = self._split(route, correlation_id, response)
            else:
                pieces = [self._frame(route, correlation_id, response)]
        except Exception:
            # Nothing that the client could read can be said: hanging up is the clearest answer.
            log.exception("the answer of API %d v%d has no encoding", route.api_key, route.version)
            reply.connection.abort()
            return
        reply.send(pieces)
        route.record_ns(perf_counter_ns() - started_ns)

    def _failure(self, route: Route, request: Message) -> Message:
        return failed_response(
            request, route.response, route.version, ErrorCode.UNKNOWN_SERVER_ERROR
        )

    def _frame(self, route: Route, correlation_id: int, response: Message) -> bytearray:
        frame = bytearray(route.prefix)
        route.encode(response, frame)
        LENGTH_AND_CORRELATION.pack_into(frame, 0, len(frame) - 4, correlation_id)
        return frame

    def _split(self, route: Route, correlation_id: int, response: Message) -> list[Segment]:
        """Frame an answer whose records stay in their files."""
        pieces: list[Segment] = segments(response, route.version)
        frame = bytearray(route.prefix)
        length = len(frame) - 4 + sum(map(len, pieces))
        LENGTH_AND_CORRELATION.pack_into(frame, 0, length, correlation_id)
        frame += pieces[0]  # type: ignore[arg-type]  # the first piece is never records
        pieces[0] = frame
        return pieces

    def _intercept(
        self,
        connection: Connection,
        route: Route,
        context: Context,
        request: Message,
        correlation_id: int,
        body: memoryview,
    ) -> bool:
        """Let the fault hooks have their way; True if they took the request over."""
        assert self._hooks is not None
        action = self._hooks.on_request(context.api_key, context.api_version, context.client_id)
        if isinstance(action, Drop):
            connection.abort()
            return True
        if isinstance(action, Fail):
            response = failed_response(request, route.response, route.version, action.error)
            connection.answer(self._frame(route, correlation_id, response))
            return True
        if isinstance(action, Delay):
            reply = connection.answer_later(holds_line=True)
            # The receive buffer is re-used before the delay is over: keep a copy of the request.
            copy = bytearray(body)
            request = route.decode(memoryview(copy), 0, len(copy))[0]
            delayed = self._delayed(route, context, request, action.seconds)
            self._spawn(
                self._finish(route, correlation_id, request, delayed, reply, perf_counter_ns())
            )
            return True
        return False

    async def _delayed(
        self, route: Route, context: Context, request: Any, seconds: float
    ) -> Message | None:
        await asyncio.sleep(seconds)
        answer = route.function(self._node, context, request)
        if isinstance(answer, Pending):
            return await answer.wait()
        if answer is None or isinstance(answer, Message):
            return answer
        response: Message | None = await answer
        return response


def _too_new(node: Node, context: Context, request: Message) -> Message:
    from headrace.broker.apis.api_versions import unsupported_version

    return unsupported_version()

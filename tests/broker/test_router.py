"""Frames find their API, and its answer becomes a frame: at once, later, or not at all."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from headrace.broker.connection import Connection
from headrace.broker.metrics import Metrics
from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import APIS, Api, ApiFunction
from headrace.broker.router import Route, Router
from headrace.protocol.api.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.offset_commit import OffsetCommitResponse
from headrace.protocol.api.produce import ProduceRequest
from headrace.protocol.codec import decode, encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.headers import response_header
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.schema import Message

KEY = HeartbeatRequest.API_KEY
VERSION = 4
OK = HeartbeatResponse()
FAILED = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
NODE = cast(Node, SimpleNamespace(metrics=Metrics()))


class FakeSlot:
    """Keeps what is sent in its place."""

    def __init__(self, connection: FakeConnection, blocks: bool) -> None:
        self.connection = connection
        self.blocks = blocks
        self.pieces: list[Any] | None = None

    def send(self, pieces: list[Any]) -> None:
        self.pieces = pieces


class FakeConnection:
    """Keeps what the router does to a connection."""

    def __init__(self) -> None:
        self.peer = "127.0.0.1"
        self.fast_paths: dict[Route, Any] = {}
        self.sent: list[bytes] = []
        self.pieces: list[Any] = []
        self.slots: list[FakeSlot] = []
        self.aborted = False
        self.refusals: list[str] = []

    def respond(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def respond_in_pieces(self, pieces: list[Any]) -> None:
        self.pieces += pieces

    def respond_later(self, *, blocks: bool) -> FakeSlot:
        self.slots.append(FakeSlot(self, blocks))
        return self.slots[-1]

    def abort(self) -> None:
        self.aborted = True

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Router]:
    """Makes a router whose only API is Heartbeat, served by a given function."""

    def serve(function: ApiFunction, **options: Any) -> Router:
        hooks = options.pop("hooks", None)
        api = Api(KEY, HeartbeatRequest, 1, VERSION, function, 1, False, False, None, None)
        monkeypatch.setitem(APIS, KEY, api._replace(**options))
        return Router(NODE, hooks)

    return serve


def send(
    router: Router,
    connection: FakeConnection,
    *,
    request: Message | None = None,
    key: int = KEY,
    version: int = VERSION,
    correlation_id: int = 7,
) -> None:
    request = request or HeartbeatRequest(group_id="g")
    flexible = version >= request.FLEXIBLE
    header = struct.pack(">hhih", key, version, correlation_id, -1) + bytes(flexible)
    body = encode(request, version) if version <= request.VERSIONS[1] else b""
    frame = memoryview(bytearray(header + body))
    router.execute(cast(Connection, connection), frame, 0, len(frame))


def frame(response: Message, correlation_id: int = 7, version: int = VERSION) -> bytes:
    data = response_header(KEY, version, correlation_id) + encode(response, version)
    return struct.pack(">i", len(data)) + data


def test_a_response_has_the_correlation_id_of_its_request(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    router = serve(lambda node, context, request: OK)
    send(router, connection, correlation_id=41)
    send(router, connection, correlation_id=42)
    assert connection.sent == [frame(OK, 41), frame(OK, 42)]


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_an_api_function_gets_the_decoded_request_and_its_context(
    serve: Callable[..., Router], connection: FakeConnection, version: int
) -> None:
    seen: list[Any] = []

    def function(node: Any, context: Any, request: HeartbeatRequest) -> Message:
        seen.extend((node, context.api_version, context.peer, request.group_id))
        return OK

    send(serve(function), connection, version=version)
    assert seen == [NODE, version, "127.0.0.1", "g"]
    assert connection.sent == [frame(OK, version=version)]


@pytest.mark.parametrize(("key", "version"), [(999, 0), (KEY, 0), (KEY, VERSION + 1)])
def test_an_api_or_version_that_is_not_served_ends_the_connection(
    serve: Callable[..., Router], connection: FakeConnection, key: int, version: int
) -> None:
    router = serve(lambda node, context, request: OK)
    with pytest.raises(ProtocolError, match=f"{key}"):
        send(router, connection, key=key, version=version)


def test_an_api_may_respond_to_versions_that_it_does_not_serve(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    router = serve(lambda node, context, request: OK, unsupported=lambda: FAILED)
    send(router, connection, version=VERSION + 1)
    assert connection.sent == [frame(FAILED, version=0)]


def test_a_function_that_fails_is_answered_with_an_error(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    def function(node: Any, context: Any, request: Any) -> Message:
        raise RuntimeError("a bug")

    send(serve(function), connection)
    assert connection.sent == [frame(FAILED)]


def test_a_function_that_finds_the_request_malformed_ends_the_connection(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    def function(node: Any, context: Any, request: Any) -> Message:
        raise ProtocolError("malformed")

    with pytest.raises(ProtocolError, match="malformed"):
        send(serve(function), connection)


def test_no_response_is_sent_for_none(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    send(serve(lambda node, context, request: None), connection)
    assert not connection.sent
    assert not connection.slots


@pytest.mark.parametrize("blocks", [True, False])
def test_a_pending_response_is_sent_once_it_is_resolved(
    serve: Callable[..., Router], connection: FakeConnection, blocks: bool
) -> None:
    pending = Pending(blocks=blocks)
    send(serve(lambda node, context, request: pending), connection)
    (slot,) = connection.slots
    assert slot.blocks is blocks
    assert slot.pieces is None
    pending.resolve(OK)
    assert slot.pieces == [frame(OK)]


def test_a_pending_response_without_an_encoding_ends_the_connection(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    pending = Pending()
    send(serve(lambda node, context, request: pending), connection)
    pending.resolve(OffsetCommitResponse())
    assert connection.aborted


async def returns(response: Message | None) -> Message | None:
    return response


async def raises() -> Message | None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("work", "pieces"),
    [
        (lambda: returns(OK), [frame(OK)]),
        (lambda: returns(None), []),
        (raises, [frame(FAILED)]),
    ],
    ids=["response", "no response", "failure"],
)
def test_an_awaitable_blocks_the_connection_until_it_is_done(
    serve: Callable[..., Router],
    connection: FakeConnection,
    work: Callable[[], Awaitable[Message | None]],
    pieces: list[bytes],
) -> None:
    router = serve(lambda node, context, request: work())

    async def scenario() -> None:
        send(router, connection)
        (slot,) = connection.slots
        assert slot.blocks
        assert slot.pieces is None
        await router.drain()
        assert slot.pieces == pieces

    asyncio.run(scenario())


async def finds_malformed() -> Message | None:
    raise ProtocolError("malformed")


def test_an_awaitable_that_finds_the_request_malformed_ends_the_connection(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    router = serve(lambda node, context, request: finds_malformed())

    async def scenario() -> None:
        send(router, connection)
        await router.drain()

    asyncio.run(scenario())
    assert connection.refusals == ["malformed"]
    assert connection.slots[0].pieces is None


def produce_with_acks_0(
    monkeypatch: pytest.MonkeyPatch, connection: FakeConnection, function: ApiFunction
) -> None:
    api = APIS[ProduceRequest.API_KEY]._replace(function=function, fast_path=None)
    monkeypatch.setitem(APIS, ProduceRequest.API_KEY, api)
    router = Router(NODE)

    async def scenario() -> None:
        send(router, connection, request=ProduceRequest(acks=0), key=api.api_key, version=9)
        await router.drain()

    asyncio.run(scenario())


def test_a_produce_with_acks_0_that_fails_gets_a_hang_up_and_no_response(
    monkeypatch: pytest.MonkeyPatch, connection: FakeConnection
) -> None:
    def function(node: Any, context: Any, request: Any) -> Message:
        raise RuntimeError("a bug")

    with pytest.raises(ProtocolError, match="wants no response"):
        produce_with_acks_0(monkeypatch, connection, function)
    assert not connection.sent


def test_a_produce_with_acks_0_that_fails_later_gets_a_hang_up_and_no_response(
    monkeypatch: pytest.MonkeyPatch, connection: FakeConnection
) -> None:
    produce_with_acks_0(monkeypatch, connection, lambda node, context, request: raises())
    assert connection.refusals == ["a request that wants no response failed: UNKNOWN_SERVER_ERROR"]
    assert connection.slots[0].pieces is None


def test_a_cancelled_function_ends_the_connection(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    async def scenario() -> None:
        router = serve(lambda node, context, request: asyncio.Event().wait())
        send(router, connection)
        await asyncio.sleep(0)
        router.cancel()
        await router.drain()

    asyncio.run(scenario())
    assert connection.aborted


def test_records_of_a_response_are_left_to_the_connection(
    monkeypatch: pytest.MonkeyPatch, connection: FakeConnection
) -> None:
    records = b"records"
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])]
    )
    api = APIS[FetchRequest.API_KEY]._replace(function=lambda node, context, request: response)
    monkeypatch.setitem(APIS, FetchRequest.API_KEY, api)
    send(Router(NODE), connection, request=FetchRequest(), key=api.api_key, version=12)
    assert any(piece is records for piece in connection.pieces)
    data = b"".join(map(bytes, connection.pieces))
    assert struct.unpack_from(">ii", data) == (len(data) - 4, 7)
    assert decode(FetchResponse, 12, data[9:]).responses[0].partitions[0].records == records


class RecordingFastPath:
    """Takes a request once it has learnt one, unless it is told to decline."""

    VERSION_MIN: ClassVar[int] = 3
    declines: ClassVar[bool] = False

    def __init__(self, node: Node, route: Route) -> None:
        self.learnt: list[bytes] = []
        self.taken: list[bytes] = []

    def take(
        self, connection: Connection, view: memoryview, start: int, end: int, started_ns: int
    ) -> bool:
        self.taken.append(bytes(view[start:end]))
        return not self.declines

    def learn(
        self, request: HeartbeatRequest, view: memoryview, start: int, body: int, end: int
    ) -> None:
        assert bytes(view[body:end]) == encode(request, VERSION)
        self.learnt.append(bytes(view[start:end]))


class DecliningFastPath(RecordingFastPath):
    declines = True


def test_a_fast_path_learns_a_request_and_takes_the_next(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    router = serve(lambda node, context, request: OK, fast_path=RecordingFastPath)
    for _ in range(3):
        send(router, connection)
    (fast_path,) = connection.fast_paths.values()
    assert (len(fast_path.learnt), len(fast_path.taken)) == (1, 2)
    assert connection.sent == [frame(OK)]


def test_a_request_that_the_fast_path_declines_is_decoded_and_learnt(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    router = serve(lambda node, context, request: OK, fast_path=DecliningFastPath)
    for _ in range(3):
        send(router, connection)
    (fast_path,) = connection.fast_paths.values()
    assert (len(fast_path.learnt), len(fast_path.taken)) == (3, 2)
    assert connection.sent == [frame(OK)] * 3


def test_connections_do_not_share_fast_paths(serve: Callable[..., Router]) -> None:
    router = serve(lambda node, context, request: OK, fast_path=RecordingFastPath)
    one, two = FakeConnection(), FakeConnection()
    send(router, one)
    send(router, two)
    assert one.sent == two.sent == [frame(OK)]


def test_older_versions_have_no_fast_path(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    router = serve(lambda node, context, request: OK, fast_path=RecordingFastPath)
    send(router, connection, version=RecordingFastPath.VERSION_MIN - 1)
    assert not connection.fast_paths


def test_fault_hooks_see_every_request(
    serve: Callable[..., Router], connection: FakeConnection
) -> None:
    seen: list[tuple[int, int, str | None]] = []
    hooks = SimpleNamespace(on_request=lambda *request: seen.append(request))
    router = serve(lambda node, context, request: OK, fast_path=RecordingFastPath, hooks=hooks)
    for _ in range(3):
        send(router, connection)
    assert seen == [(KEY, VERSION, None)] * 3
    assert not connection.fast_paths

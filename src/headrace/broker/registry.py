"""The table of APIs: each file in `apis/` adds its API to it with `@serves`.

An API function gets the node, the context of the request and the decoded request. It returns a
response, something to wait for, or None if the client wants no response. An API that clients call
again and again with almost the same bytes may register a fast path as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from headrace.broker.purgatory import Pending
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.broker.node import Node
    from headrace.broker.router import Route

RequestT = TypeVar("RequestT", bound=Message)
RequestT_contra = TypeVar("RequestT_contra", bound=Message, contravariant=True)

ApiResult = Message | Awaitable[Message | None] | Pending | None
ApiFunction = Callable[["Node", "Context", Any], Any]

ANONYMOUS = "User:ANONYMOUS"


class Context:
    """The version, the client and the peer of one request."""

    __slots__ = ("api_key", "api_version", "client_id", "listener", "peer", "principal")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        client_id: str | None,
        peer: str = "127.0.0.1",
        listener: str = "PLAINTEXT",
        principal: str = ANONYMOUS,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.peer = peer
        self.listener = listener
        self.principal = principal


class FastPath(Protocol[RequestT_contra]):
    """Serves requests that repeat an earlier one of the same connection, without decoding them.

    One belongs to one connection and one version of its API.
    """

    # The first version that has a fast path.
    VERSION_MIN: ClassVar[int]

    def __init__(self, node: Node, route: Route) -> None: ...

    def take(
        self, connection: Connection, view: memoryview, start: int, end: int, started_ns: int
    ) -> bool:
        """Serve the request in `view[start:end]`, or return False to have it decoded."""
        ...

    def learn(
        self, request: RequestT_contra, view: memoryview, start: int, body: int, end: int
    ) -> None:
        """Remember a request that was decoded and served, if later ones may repeat it."""
        ...


def _always(request: Message) -> bool:
    return True


class Api(NamedTuple):
    """One API as this broker serves it."""

    api_key: int
    request: type[Message]
    version_min: int
    version_max: int
    function: ApiFunction
    # The oldest version that ApiVersions lists; below `version_min` requests are refused. Only
    # Produce differs: clients silently drop compression when it is not listed from 0
    # (KAFKA-18659).
    advertised_min: int
    # Requests with records may be large, and are decoded in the buffer that received them.
    receives_records: bool
    # Responses with records leave their records in files until the socket takes them.
    sends_records: bool
    fast_path: type[FastPath[Any]] | None
    # Responds to versions that are not served, in the format of version 0 (KIP-511).
    unsupported: Callable[[], Message] | None
    # Whether the client reads a response to this request; if not, a failure hangs up.
    wants_response: Callable[[Any], bool] = _always


APIS: dict[int, Api] = {}


def serves(
    request: type[RequestT],
    version_min: int,
    version_max: int,
    *,
    advertised_min: int | None = None,
    receives_records: bool = False,
    sends_records: bool = False,
    fast_path: type[FastPath[RequestT]] | None = None,
    unsupported: Callable[[], Message] | None = None,
    wants_response: Callable[[RequestT], bool] = _always,
) -> Callable[
    [Callable[[Node, Context, RequestT], ApiResult]], Callable[[Node, Context, RequestT], ApiResult]
]:
    """Register the decorated function for these versions of `request`."""

    def register(
        function: Callable[[Node, Context, RequestT], ApiResult],
    ) -> Callable[[Node, Context, RequestT], ApiResult]:
        key = request.API_KEY
        if key in APIS:
            raise ValueError(f"API key {key} is registered twice")
        APIS[key] = Api(
            key,
            request,
            version_min,
            version_max,
            function,
            version_min if advertised_min is None else advertised_min,
            receives_records,
            sends_records,
            fast_path,
            unsupported,
            wants_response,
        )
        return function

    return register

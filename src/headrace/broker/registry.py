"""The table of handlers: each API's file adds one line to it with `@handles`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headrace.broker.pending import Pending
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.context import Context
    from headrace.broker.node import Node

RequestT = TypeVar("RequestT", bound=Message)

# A handler answers at once with a message, later with an awaitable or a `Pending`,
# or never with None (a produce with acks=0).
Answer = Message | Awaitable[Message | None] | Pending | None
HandlerFunction = Callable[["Node", "Context", Any], Any]


class Handler(NamedTuple):
    """One API as served here: its versions and the function that serves them."""

    api_key: int
    request: type[Message]
    version_min: int
    version_max: int
    function: HandlerFunction
    # Oldest version told to clients; below `version_min` requests are refused. Only Produce
    # differs: clients silently drop compression when it is not listed from 0 (KAFKA-18659).
    advertised_min: int


HANDLERS: dict[int, Handler] = {}


def handles(
    request: type[RequestT],
    version_min: int,
    version_max: int,
    *,
    advertised_min: int | None = None,
) -> Callable[
    [Callable[[Node, Context, RequestT], Answer]], Callable[[Node, Context, RequestT], Answer]
]:
    """Register the decorated function as the handler of `request` for these versions."""

    def register(
        function: Callable[[Node, Context, RequestT], Answer],
    ) -> Callable[[Node, Context, RequestT], Answer]:
        key = request.API_KEY
        if key in HANDLERS:
            raise ValueError(f"API key {key} has two handlers")
        advertised = version_min if advertised_min is None else advertised_min
        HANDLERS[key] = Handler(key, request, version_min, version_max, function, advertised)
        return function

    return register

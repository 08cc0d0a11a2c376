"""A handler's function and its options, checked once."""

from __future__ import annotations

import difflib
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.client.message import Message
from headrace.client.payloads import Decoder, decoder
from headrace.errors import HandlerError, MissingId
from headrace.handlers.signatures import Role, read_signature
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.handlers.policies import Retry

ORDERS = ("none", "partition", "key", "latest")
DELIVERIES = ("at_most_once", "at_least_once", "exactly_once")
ONCE_BY = ("inbox", "transaction", "offsets")
PRESSURES = ("pause", "caller_runs", "direct", "spill")

LANES = 64
WORKERS = (1, 16)
LINGER = "200ms"
DRAIN = "10s"
BUFFER_MESSAGES = 10_000
BUFFER_BYTES = 32 << 20

IdOf = Callable[[Message], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """One handler; `make_spec` makes it, and nothing changes it."""

    name: str
    topics: tuple[str, ...]
    group: str
    function: Callable[..., Any]
    roles: tuple[Role, ...]
    decoder: Decoder
    is_async: bool = False
    order: str = "partition"
    workers_min: int = WORKERS[0]
    workers_max: int = WORKERS[1]
    delivery: str = "at_least_once"
    once: str = ""
    retry: Retry | None = None
    dead_letters: bool = True
    batch: int = 0
    linger_ms: int = 0
    pressure: str = "pause"
    slow_start_ms: int = 0
    buffer_messages: int = BUFFER_MESSAGES
    buffer_bytes: int = BUFFER_BYTES
    drain_ms: int = 10_000
    start: str | None = None
    id_of: IdOf | None = None
    version: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wants_tx(self) -> bool:
        """Whether it runs inside a database transaction."""
        return "tx" in self.roles or self.once in ("inbox", "offsets")

    def identify(self, message: Message) -> Message:
        """Give the message the id that its handler uses; MissingId if it has none."""
        if self.id_of is not None:
            message.id = _checked_id(self.id_of(message), message)
        return message


def make_spec(
    function: Callable[..., Any],
    topics: Sequence[str],
    *,
    group: str | None = None,
    name: str | None = None,
    order: str = "partition",
    lanes: int = LANES,
    workers: int | tuple[int, int] = WORKERS,
    delivery: str | None = None,
    once: str | None = None,
    retry: Retry | None = None,
    dead_letters: bool = True,
    batch: int = 0,
    linger: str | int = LINGER,
    pressure: str = "pause",
    slow_start: str | int = 0,
    buffer_messages: int = BUFFER_MESSAGES,
    buffer_bytes: int = BUFFER_BYTES,
    drain: str | int = DRAIN,
    start: str | None = None,
    id: str | IdOf | None = None,
    version: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> HandlerSpec:
    """Check the options of a handler; HandlerError for those that cannot work."""
    called = getattr(function, "__name__", "handler")
    if not topics:
        raise HandlerError(f"handler {called} has no topic", '@app.handler("orders")')
    _one_of("order", order, ORDERS)
    _one_of("pressure", pressure, PRESSURES)
    signature = read_signature(function, batch > 0)
    delivery, once = _promise(delivery, once, "tx" in signature.roles)
    workers_min, workers_max = _workers(order, lanes, workers)
    spec = HandlerSpec(
        name=name or (f"{group}.{called}" if group else called),
        topics=tuple(topics),
        group=group or called,
        function=function,
        roles=signature.roles,
        decoder=decoder(signature.kind),
        is_async=signature.is_async,
        order=order,
        workers_min=workers_min,
        workers_max=workers_max,
        delivery=delivery,
        once=once,
        retry=retry,
        dead_letters=dead_letters,
        batch=batch,
        linger_ms=duration_ms(linger) if batch else 0,
        pressure=pressure,
        slow_start_ms=duration_ms(slow_start),
        buffer_messages=buffer_messages,
        buffer_bytes=buffer_bytes,
        drain_ms=duration_ms(drain),
        start=start,
        id_of=id_function(id),
        version=version or _fingerprint(function),
        settings=dict(settings or {}),
    )
    _check(spec)
    return spec


def id_function(id: str | IdOf | None) -> IdOf | None:
    """The function for id=None (header `headrace-id` or offset), "offset" or "header:NAME"."""
    if id is None or callable(id):
        return id
    if id == "offset":
        return lambda message: message.source
    if not id.startswith("header:"):
        raise HandlerError(
            f"id={id!r} is not a source of ids",
            'use id="offset", id="header:order-id" or a function of Message',
        )
    name = id.removeprefix("header:")

    def from_header(message: Message) -> str:
        value = message.header(name)
        if not value:
            raise MissingId(
                f"{message.source} has no header {name!r}", f"its handler uses id={id!r}"
            )
        return value.decode("utf-8", "replace")

    return from_header


def _checked_id(id: object, message: Message) -> str:
    """The id if the store can keep it; the user's function may return anything."""
    try:
        if isinstance(id, str) and id and id.encode():
            return id
    except UnicodeEncodeError:
        pass
    raise MissingId(
        f"{message.source} has no id: the id function returned {id!r:.100}",
        "return a str of one character or more",
    )


def _promise(delivery: str | None, once: str | None, takes_tx: bool) -> tuple[str, str]:
    """Delivery and `once`; a handler that takes a Transaction gets the inbox by default."""
    if delivery is not None:
        _one_of("delivery", delivery, DELIVERIES)
    if once is not None:
        _one_of("once", once, ONCE_BY)
        if delivery not in (None, "exactly_once"):
            raise HandlerError(
                f"once={once!r} needs delivery='exactly_once', not {delivery!r}",
                "leave one of the two out",
            )
    if once is not None or delivery == "exactly_once" or (delivery is None and takes_tx):
        return "exactly_once", once or "inbox"
    return delivery or "at_least_once", ""


def _workers(order: str, lanes: int, workers: int | tuple[int, int]) -> tuple[int, int]:
    least, most = (workers, workers) if isinstance(workers, int) else workers
    if order in ("key", "latest"):
        least, most = 1, lanes
    if not 1 <= least <= most:
        raise HandlerError(
            f"workers from {least} to {most} is not a range of 1 or more",
            "use workers=4, workers=(2, 32) or lanes=64",
        )
    return least, most


def _check(spec: HandlerSpec) -> None:
    if spec.once in ("offsets", "transaction") and spec.order != "partition":
        raise HandlerError(
            f"once={spec.once!r} needs order='partition', not {spec.order!r}",
            "an offset means that all before it is done; once='inbox' works with every order",
        )
    if spec.delivery == "at_most_once" and spec.retry is not None:
        raise HandlerError(
            f"handler {spec.name} has delivery='at_most_once', so it cannot be retried",
            "leave retry out, or use delivery='at_least_once'",
        )
    if spec.pressure == "spill" and spec.order != "none":
        raise HandlerError(
            f"pressure='spill' sets messages aside and cannot keep order={spec.order!r}",
            "use pressure='pause', or order='none'",
        )
    if spec.order == "latest" and (spec.batch or spec.delivery == "exactly_once"):
        raise HandlerError(
            "order='latest' runs the handler once for many messages of a key",
            "use delivery='at_least_once' and no batch with it",
        )
    if spec.pressure == "caller_runs" and spec.is_async:
        raise HandlerError(
            f"async handler {spec.name} has no thread that could run it",
            "pressure='caller_runs' works with plain functions; use 'pause' or 'direct'",
        )
    if "out" in spec.roles and spec.once != "transaction":
        raise HandlerError(f"handler {spec.name} takes an Output", "use once='transaction' with it")
    if spec.once == "transaction" and "tx" in spec.roles:
        raise HandlerError(
            f"handler {spec.name} takes a Transaction of the store",
            "once='transaction' is one Kafka transaction: take an Output, or use once='inbox'",
        )
    if spec.batch < 0 or spec.buffer_messages < 1 or spec.buffer_bytes < 1:
        raise HandlerError(
            f"handler {spec.name} has batch={spec.batch}, buffer_messages={spec.buffer_messages}, "
            f"buffer_bytes={spec.buffer_bytes}",
            "batch must be 0 or more, the buffers 1 or more",
        )


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        known = ", ".join(map(repr, choices))
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {known}"
        raise HandlerError(f"{option}={value!r} is unknown", hint)


def _fingerprint(function: Callable[..., Any]) -> str:
    """A short name for this version of the code, kept with dead letters."""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:12]

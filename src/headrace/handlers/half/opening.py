"""`app.half(...)`: what was said about a half message, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.client.delayed import AT_HEADER, DELAY_HEADER, After, At, after_ms, as_pairs, at_ms
from headrace.client.payloads import encode
from headrace.errors import HandlerError
from headrace.handlers.half.half import Half
from headrace.ledger.delay.headers import read_due_ms
from headrace.ledger.half.bodies import Prepared
from headrace.ledger.half.headers import OURS, checked_after, checked_group, checked_target
from headrace.ledger.records import read_id
from headrace.store.ids import new_id
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.handlers.app import App

TIMEOUT = "10s"


def open_half(
    app: App,
    topic: str,
    value: object,
    *,
    key: bytes | str | None = None,
    headers: Mapping[str, bytes | str] | None = None,
    id: str | None = None,
    group: str | None = None,
    after: After | None = None,
    at: At | None = None,
    check_after: str | int | None = None,
    timeout: str | int = TIMEOUT,
) -> Half:
    """A half message for a topic; HandlerError for what could never be delivered or checked."""
    context = app.context
    given = tuple((name, encode(text)) for name, text in as_pairs(headers))
    try:
        for name, _ in given:
            if name in OURS:
                raise ValueError(f"the header {name} is set by the arguments")
        own_id = new_id(context.clock.now_ms()) if id is None else read_id(id.encode())
        prepared = Prepared(
            checked_target(topic.encode()),
            checked_group(group or _only_group(app)),
            encode(key),
            encode(value),
            given,
            _delay(after, at, context.clock.now_ms()),
        )
        if context.large is not None and len(prepared.value or b"") > context.large.above_bytes:
            raise ValueError("it is too large for one record; send where it lies")
        check_after_ms = None if check_after is None else checked_after(check_after)
        timeout_s = duration_ms(timeout) / 1000
    except ValueError as problem:
        raise HandlerError(f"a half message for {topic}: {problem}") from None
    checker = app.half_checkers.get(prepared.group)
    return Half(
        context,
        own_id,
        prepared,
        checker=checker,
        check_after_ms=check_after_ms,
        timeout_s=timeout_s,
    )


def _only_group(app: App) -> str:
    groups = list(app.half_checkers)
    if len(groups) != 1:
        raise HandlerError(
            f"whom is the half service to ask? {len(groups)} producer groups have a checker here",
            'app.half("orders", order, group="shop")',
        )
    return groups[0]


def _delay(after: After | None, at: At | None, now_ms: int) -> tuple[str, str] | None:
    if after is not None and at is not None:
        raise ValueError("say after= or at=, not both")
    if after is not None:
        delay = DELAY_HEADER, f"{after_ms(after)}ms"
    elif at is not None:
        delay = AT_HEADER, str(at_ms(at))
    else:
        return None
    read_due_ms({delay[0]: delay[1].encode()}, now_ms)
    return delay

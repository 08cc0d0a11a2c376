"""Large messages that are put away: their bodies lie with the store, their rows stay small."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.client.message import Message
from headrace.large.bodies import STEP_BYTES, BrokenBody, ClaimedBody, Source
from headrace.large.claims import Claims, new_name
from headrace.large.errors import LargeBroken
from headrace.large.headers import (
    CLAIM,
    KEPT,
    BadHeaders,
    claim_headers,
    kind_of,
    read_claim,
)
from headrace.large.reassembly import LOAD_BYTES_MAX
from headrace.large.records import LargeMessage
from headrace.large.sending import write_claim

if TYPE_CHECKING:
    from headrace.large.large import Large
    from headrace.store import Store


class Keeping:
    """Turns messages into what a row can hold, and back."""

    def __init__(self, large: Large | None, store: Store | None) -> None:
        self._large = large
        self._store = store

    def keep(self, message: Message) -> Message:
        """The message for a row; the body of a large one is durable when this returns.

        Not inside a transaction: a body is written in many of its own.
        """
        if not isinstance(message, LargeMessage):
            return message
        body = message.large
        claim = body.claim if isinstance(body, ClaimedBody) else None
        if claim is None or claim.kind != KEPT:
            # One that lies elsewhere goes with its topic, and a dead letter stays for longer.
            name = new_name(KEPT, message.topic, self._now_ms(), uuid.uuid4().hex)
            with suppress(LargeBroken):
                claim = write_claim(
                    self._kept().write, name, _stored(body.open()), body.codec, KEPT
                )
        if claim is None:
            return _row(message, b"", [])
        return _row(message, claim.name.encode(), claim_headers(claim))

    def open(self, message: Message) -> Message:
        """The message of a row, as its handler had it."""
        kind = kind_of(message.headers) if message.headers else None
        if kind not in (CLAIM, KEPT):
            return message
        try:
            claim = read_claim(message.headers, message.value)
        except BadHeaders as problem:
            return LargeMessage(message, BrokenBody(str(problem)))
        most = LOAD_BYTES_MAX if self._large is None else self._large.limits.load_bytes_max
        return LargeMessage(message, ClaimedBody(claim, self._place_of(kind), most))

    def _place_of(self, kind: str) -> Callable[[], Claims]:
        if kind == KEPT:
            return self._kept
        large = self._large
        assert large is not None, "a claim check was read without Large"
        return lambda: large.claims

    def _kept(self) -> Claims:
        assert self._store is not None, "messages are put away in a store"
        return kept_in(self._store)

    def _now_ms(self) -> int:
        assert self._store is not None
        return self._store.clock.now_ms()


def kept_in(store: Store) -> Claims:
    """The bodies that lie with a store."""
    from headrace.large import claims_sql

    return claims_sql.SqlClaims(store.database, claims_sql.KEPT)


def _row(message: Message, value: bytes, headers: list[tuple[str, bytes | None]]) -> Message:
    return Message(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        value,
        [*message.headers, *headers],
        message.timestamp_ms,
        message.id,
        message.attempt,
    )


def _stored(source: Source) -> Iterator[bytes]:
    while piece := source.read(STEP_BYTES):
        yield piece

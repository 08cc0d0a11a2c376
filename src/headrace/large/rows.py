"""Large messages in rows of the app's store: the row stays small, the body has its own table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.client.message import Message
from headrace.large.bodies import STEP_BYTES, BrokenBody, ClaimedBody, Source
from headrace.large.body_store import BodyStore, new_name
from headrace.large.errors import LargeBroken
from headrace.large.headers import (
    CLAIM,
    KEPT,
    BadHeaders,
    claim_headers,
    kind_of,
    read_claim,
)
from headrace.large.reassembly_machine import LOAD_BYTES_MAX
from headrace.large.records import LargeMessage
from headrace.large.sender import write_claim

if TYPE_CHECKING:
    from headrace.large.large import Large
    from headrace.store import Store


class LargeRows:
    """Turns messages into ones that fit into a row, and back."""

    def __init__(self, large: Large | None, store: Store | None) -> None:
        self._large = large
        self._store = store

    def to_row(self, message: Message) -> Message:
        """The message for a row; the body of a large one is durable when this returns.

        Do not call it in a transaction: it writes the body in many transactions of its own.
        """
        if not isinstance(message, LargeMessage):
            return message
        body = message.large
        claim = body.claim if isinstance(body, ClaimedBody) else None
        if claim is None or claim.kind != KEPT:
            # Also copy the body of a claim check: it expires with its topic, but a dead letter
            # stays longer.
            name = new_name(KEPT, message.topic, self._now_ms(), uuid.uuid4().hex)
            with suppress(LargeBroken):
                claim = write_claim(
                    self._row_bodies().write, name, _stored(body.open()), body.codec, KEPT
                )
        if claim is None:
            return _row(message, b"", [])
        return _row(message, claim.name.encode(), claim_headers(claim))

    def from_row(self, message: Message) -> Message:
        """The message of a row, as its handler got it."""
        kind = kind_of(message.headers) if message.headers else None
        if kind not in (CLAIM, KEPT):
            return message
        try:
            claim = read_claim(message.headers, message.value)
        except BadHeaders as problem:
            return LargeMessage(message, BrokenBody(str(problem)))
        load_bytes_max = (
            LOAD_BYTES_MAX if self._large is None else self._large.limits.load_bytes_max
        )
        return LargeMessage(message, ClaimedBody(claim, self._store_of(kind), load_bytes_max))

    def _store_of(self, kind: str) -> Callable[[], BodyStore]:
        if kind == KEPT:
            return self._row_bodies
        large = self._large
        assert large is not None, "a claim check was read without Large"
        return lambda: large.body_store

    def _row_bodies(self) -> BodyStore:
        assert self._store is not None, "messages are kept in a store"
        return row_bodies(self._store)

    def _now_ms(self) -> int:
        assert self._store is not None
        return self._store.clock.now_ms()


def row_bodies(store: Store) -> BodyStore:
    """The body store of rows in an app's store."""
    from headrace.large import body_table

    return body_table.BodyTable(store.database, body_table.KEPT)


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

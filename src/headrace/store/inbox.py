"""The inbox: ids of consumed messages, written in the transaction of their effect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.store.columns import is_plain, plain_id
from headrace.store.transaction import StoreTable, Transaction

# How long an id is remembered by default: as long as Kafka keeps records.
KEEP_MS = 7 * 24 * 3_600_000
CLEAN_ROWS_MAX = 1_000

_CLAIM = {
    "sqlite": "INSERT INTO headrace_inbox (id, consumer, at_ms) "
    "SELECT value, ?, ? FROM json_each(?) WHERE true ON CONFLICT DO NOTHING RETURNING id",
    "postgresql": "INSERT INTO headrace_inbox (consumer, at_ms, id) "
    "SELECT %s, %s, unnest(%s::text[]) ON CONFLICT DO NOTHING RETURNING id",
}


class InboxRow(NamedTuple):
    """A message that a consumer has handled."""

    id: str
    consumer: str
    at_ms: int


class InboxPort(Protocol):
    """What handlers ask of an inbox, in SQL or elsewhere."""

    def claim(self, tx: Transaction, consumer: str, ids: Sequence[str], now_ms: int) -> set[str]:
        """The ids that are new; one that is in `ids` twice is new once."""
        ...

    def done(self, consumer: str, ids: Sequence[str]) -> None:
        """Note that the effects of claimed messages are committed."""
        ...

    def release(self, consumer: str, ids: Sequence[str]) -> None:
        """Note that claimed messages failed and will be claimed again."""
        ...


class Inbox(StoreTable):
    """The table of consumed messages; a repeated message has one effect."""

    def claim(self, tx: Transaction, consumer: str, ids: Sequence[str], now_ms: int) -> set[str]:
        """Mark these ids as consumed within `tx` and return those that were not yet.

        When another transaction is about to consume one of them, this waits for its end.
        """
        # In one order, so that two claims of the same ids do not deadlock.
        wanted = sorted(set(ids))
        names = None
        if not all(map(is_plain, wanted)):
            names = {plain_id(id): id for id in wanted}
            wanted = sorted(names)
        cursor = tx.driver
        rows = wanted if tx.kind == "postgresql" else json.dumps(wanted)
        cursor.execute(_CLAIM[tx.kind], (consumer, now_ms, rows))
        new = {id for (id,) in cursor.fetchall()}
        return new if names is None else {names[id] for id in new}

    def done(self, consumer: str, ids: Sequence[str]) -> None:
        """Do nothing: the claim was part of the transaction."""

    def release(self, consumer: str, ids: Sequence[str]) -> None:
        """Do nothing: the claim was rolled back with its transaction."""

    def find(self, id: str) -> list[InboxRow]:
        """Which consumers have handled this message, and when."""
        with self._read() as tx:
            found = tx.execute(
                "SELECT id, consumer, at_ms FROM headrace_inbox WHERE id = :id "
                "ORDER BY at_ms, consumer",
                {"id": plain_id(id)},
            )
            return [InboxRow(row.id, row.consumer, row.at_ms) for row in found]

    def clean(self, before_ms: int, limit: int = CLEAN_ROWS_MAX) -> int:
        """Forget up to `limit` ids from before a time, oldest first; returns how many."""
        with self._begin() as tx:
            return tx.execute(
                "DELETE FROM headrace_inbox WHERE (id, consumer) IN (SELECT id, consumer "
                "FROM headrace_inbox WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit)",
                {"before_ms": before_ms, "limit": limit},
            ).rowcount

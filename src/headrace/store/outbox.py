"""The outbox, which is also the table of what was sent: pending, sent, confirmed, failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.store.arrays import array, none_of, one_of
from headrace.store.confirming import remaining
from headrace.store.headers import unpack_headers
from headrace.store.transaction import Transaction

STATES = ("pending", "sent", "confirmed", "failed")
LIST_ROWS_MAX = 100
CLEAN_ROWS_MAX = 1_000

_SIZES = (
    "SELECT seq, coalesce(length(value), 0) + coalesce(length(key), 0) FROM headrace_outbox "
    "WHERE state = 'pending' AND topic {none_of} ORDER BY seq LIMIT {0}"
)
_PENDING = (
    "SELECT seq, id, topic, key, value, headers, waiting FROM headrace_outbox "
    "WHERE state = 'pending' AND seq {one_of} ORDER BY seq"
)
# A confirmation may overtake the relay's own mark; then the state stays.
_SENT = (
    "UPDATE headrace_outbox SET sends = sends + 1, sent_ms = {0}, "
    "error = CASE WHEN state = 'pending' THEN NULL ELSE error END, "
    "state = CASE WHEN state = 'pending' THEN 'sent' ELSE state END, "
    "due_ms = CASE WHEN state = 'pending' AND waiting IS NOT NULL THEN {0} ELSE due_ms END, "
    "done_ms = CASE WHEN state = 'pending' AND waiting IS NULL THEN {0} ELSE done_ms END "
    "WHERE seq {one_of}"
)
_REFUSED = (
    "UPDATE headrace_outbox SET state = 'failed', error = {0} WHERE seq = {0} AND state = 'pending'"
)
_HELD = "UPDATE headrace_outbox SET error = {0} WHERE seq = {0} AND state = 'pending'"
_AWAITED = "SELECT seq, id, waiting FROM headrace_outbox WHERE id {one_of} AND state <> 'confirmed'"
_CONFIRMED = (
    "UPDATE headrace_outbox SET state = 'confirmed', waiting = NULL, due_ms = NULL, error = NULL, "
    "done_ms = {0} WHERE seq = {0}"
)
_STILL_AWAITED = "UPDATE headrace_outbox SET waiting = {0} WHERE seq = {0}"


class OutboxMessage(NamedTuple):
    """What the relay needs of a row; `waiting` is None when nobody has to confirm it."""

    seq: int
    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    waiting: list[str] | None


class OutboxRow(NamedTuple):
    """All that is known of a message."""

    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    state: str
    confirm_by: list[str] | None
    waiting: list[str] | None
    created_ms: int
    sends: int
    sent_ms: int | None
    due_ms: int | None
    done_ms: int | None
    error: str | None


class Overdue(NamedTuple):
    """What became of messages that nobody confirmed in time: ids sent again, and given up."""

    again: int
    failed: list[str]


class Outbox:
    """Messages on their way out; each change of state is one short transaction."""

    def __init__(self, begin: Callable[[], Transaction], read: Callable[[], Transaction]) -> None:
        self._begin = begin
        self._read = read

    # -- for the relay ---------------------------------------------------------------------

    def pending(
        self, rows_max: int, bytes_max: int, except_topics: Collection[str] = ()
    ) -> list[OutboxMessage]:
        """The oldest pending messages, at least one if there is any, in the order of sending."""
        with self._read() as tx:
            cursor = tx.driver
            skipped = array(tx.kind, sorted(except_topics))
            cursor.execute(_sql(tx, _SIZES), (skipped, rows_max))
            seqs = _first(cursor.fetchall(), bytes_max)
            if not seqs:
                return []
            cursor.execute(_sql(tx, _PENDING), (array(tx.kind, seqs),))
            return [
                OutboxMessage(seq, id, topic, key, value, unpack_headers(headers), _groups(waiting))
                for seq, id, topic, key, value, headers, waiting in cursor.fetchall()
            ]

    def mark_sent(self, tx: Transaction, seqs: Sequence[int], due_ms: int) -> None:
        """The broker has these; those to be confirmed are due at that time."""
        tx.driver.execute(_sql(tx, _SENT), (tx.now_ms, due_ms, tx.now_ms, array(tx.kind, seqs)))

    def mark_refused(self, tx: Transaction, errors: Mapping[int, str]) -> None:
        """These can never be sent: they fail, by number, with why."""
        _each(tx, _REFUSED, [(error, seq) for seq, error in errors.items()])

    def mark_held(self, tx: Transaction, errors: Mapping[int, str]) -> None:
        """These could not be sent now: they stay pending, with why."""
        _each(tx, _HELD, [(error, seq) for seq, error in errors.items()])

    def next_due_ms(self) -> int | None:
        """When the next confirmation is due, or was; None when none is awaited."""
        with self._read() as tx:
            found = tx.execute("SELECT min(due_ms) FROM headrace_outbox WHERE due_ms IS NOT NULL")
            due_ms: int | None = found.scalar_one()
            return due_ms

    def look_for_overdue(self, tx: Transaction, sends_max: int, limit: int) -> Overdue:
        """Make the unconfirmed pending again, or failed after so many sends."""
        # Asked once more by the update itself: PostgreSQL looks at a row again that was confirmed
        # while this waited for it, but not at what the inner query has found.
        is_overdue = "due_ms <= :now_ms AND state = 'sent'"
        given_up = tx.execute(
            "UPDATE headrace_outbox SET state = 'failed', due_ms = NULL, "
            "error = 'not confirmed after ' || sends || ' sends' WHERE seq IN "
            f"(SELECT seq FROM headrace_outbox WHERE {is_overdue} AND sends >= :sends_max "
            f"ORDER BY due_ms LIMIT :limit) AND {is_overdue} RETURNING id",
            {"now_ms": tx.now_ms, "sends_max": sends_max, "limit": limit},
        )
        failed = sorted(given_up.scalars())
        again = tx.execute(
            "UPDATE headrace_outbox SET state = 'pending', due_ms = NULL WHERE seq IN "
            f"(SELECT seq FROM headrace_outbox WHERE {is_overdue} AND sends < :sends_max "
            f"ORDER BY due_ms LIMIT :limit) AND {is_overdue}",
            {"now_ms": tx.now_ms, "sends_max": sends_max, "limit": limit},
        )
        return Overdue(again.rowcount, failed)

    # -- for confirmations -----------------------------------------------------------------

    def confirm(self, confirmations: Iterable[tuple[str, str | None]]) -> int:
        """Note who has confirmed which id; how many messages are confirmed by that.

        Unknown ids, which may belong to another outbox, and repeats change nothing. A
        confirmation without a group counts for a message that waits for one group or any.
        """
        groups: dict[str, list[str | None]] = {}
        for id, group in confirmations:
            groups.setdefault(id, []).append(group)
        if not groups:
            return 0
        with self._begin() as tx:
            # Locked in one order, so that two that confirm the same do not wait for each other.
            awaited = _sql(tx, _AWAITED) + " ORDER BY seq"
            tx.driver.execute(
                awaited + (" FOR UPDATE" if tx.kind == "postgresql" else ""),
                (array(tx.kind, sorted(groups)),),
            )
            rows = [
                (seq, _groups(waiting), remaining(_groups(waiting), groups[id]))
                for seq, id, waiting in tx.driver.fetchall()
            ]
            done = [(tx.now_ms, seq) for seq, _, left in rows if left is None]
            less = [
                (json.dumps(left), seq)
                for seq, waiting, left in rows
                if left is not None and left != waiting
            ]
            _each(tx, _CONFIRMED, done)
            _each(tx, _STILL_AWAITED, less)
        return len(done)

    # -- for people ------------------------------------------------------------------------

    def find(self, id: str) -> OutboxRow | None:
        """The message with this id."""
        rows = self._rows("WHERE id = :id", {"id": id})
        return rows[0] if rows else None

    def latest(
        self, *, state: str | None = None, topic: str | None = None, limit: int = LIST_ROWS_MAX
    ) -> list[OutboxRow]:
        """The latest messages, newest first."""
        conditions = {"state": state, "topic": topic}
        given = {name: value for name, value in conditions.items() if value is not None}
        where = " AND ".join(f"{name} = :{name}" for name in given)
        return self._rows(
            (f"WHERE {where} " if where else "") + "ORDER BY seq DESC LIMIT :limit",
            {**given, "limit": limit},
        )

    def counts(self) -> dict[str, int]:
        """How many messages there are in each state."""
        with self._read() as tx:
            found = tx.execute(
                "SELECT state, count(*) AS messages FROM headrace_outbox GROUP BY state"
            )
            return dict.fromkeys(STATES, 0) | {row.state: row.messages for row in found}

    def failed_count(self) -> int:
        """How many messages wait for a person."""
        with self._read() as tx:
            return int(
                tx.execute(
                    "SELECT count(*) FROM headrace_outbox WHERE state = 'failed'"
                ).scalar_one()
            )

    def resend(self, ids: Sequence[str]) -> int:
        """Make messages pending again with all their sends and confirmations still to come."""
        return self._resend("id = :id", [{"id": id} for id in ids])

    def resend_failed(self) -> int:
        """Make all failed messages pending again."""
        return self._resend("state = 'failed'", [{}])

    def clean(self, before_ms: int, limit: int = CLEAN_ROWS_MAX) -> int:
        """Remove messages that were done before a time: sent, and confirmed if they had to be."""
        with self._begin() as tx:
            return tx.execute(
                "DELETE FROM headrace_outbox WHERE seq IN (SELECT seq FROM headrace_outbox "
                # Once more, for what a person has had sent again while this waited for the row.
                "WHERE done_ms < :before_ms ORDER BY done_ms LIMIT :limit) "
                "AND done_ms < :before_ms",
                {"before_ms": before_ms, "limit": limit},
            ).rowcount

    def _resend(self, condition: str, choices: Sequence[Mapping[str, Any]]) -> int:
        with self._begin() as tx:
            return sum(
                tx.execute(
                    "UPDATE headrace_outbox SET state = 'pending', waiting = confirm_by, "
                    f"sends = 0, due_ms = NULL, done_ms = NULL, error = NULL WHERE {condition}",
                    choice,
                ).rowcount
                for choice in choices
            )

    def _rows(self, rest: str, parameters: Mapping[str, Any]) -> list[OutboxRow]:
        with self._read() as tx:
            found = tx.execute(
                "SELECT id, topic, key, value, headers, state, confirm_by, waiting, created_ms, "
                f"sends, sent_ms, due_ms, done_ms, error FROM headrace_outbox {rest}",
                parameters,
            )
            return [
                OutboxRow(**row)._replace(
                    headers=unpack_headers(row["headers"]),
                    confirm_by=_groups(row["confirm_by"]),
                    waiting=_groups(row["waiting"]),
                )
                for row in found.mappings()
            ]


def _sql(tx: Transaction, statement: str) -> str:
    mark = "%s" if tx.kind == "postgresql" else "?"
    return statement.format(mark, one_of=one_of(tx.kind), none_of=none_of(tx.kind))


def _each(tx: Transaction, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        tx.driver.executemany(_sql(tx, statement), rows)


def _first(sizes: Iterable[tuple[int, int]], bytes_max: int) -> list[int]:
    """Numbers of the first messages that are together within the limit; the first in any case."""
    chosen: list[int] = []
    total = 0
    for seq, size in sizes:
        total += size
        if chosen and total > bytes_max:
            break
        chosen.append(seq)
    return chosen


def _groups(packed: str | None) -> list[str] | None:
    return None if packed is None else json.loads(packed)

"""The outbox table: messages that are pending, sent, confirmed or failed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.store.columns import unpack_headers
from headrace.store.database import array, none_of, one_of
from headrace.store.transaction import StoreTable, Transaction

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
    """What the relay needs of a row; `waiting` is None when no group has to confirm it."""

    seq: int
    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    waiting: list[str] | None


class OutboxRow(NamedTuple):
    """All columns of a message."""

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
    """Unconfirmed messages: how many are sent again, and the ids of those given up."""

    again: int
    failed: list[str]


class Outbox(StoreTable):
    """The table; each change of state is one short transaction.

    The relay uses the methods down to `find_overdue`, confirmations use `confirm`, people the rest.
    """

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
        """Note that the broker has these; confirmations are due at `due_ms`."""
        tx.driver.execute(_sql(tx, _SENT), (tx.now_ms, due_ms, tx.now_ms, array(tx.kind, seqs)))

    def mark_refused(self, tx: Transaction, errors: Mapping[int, str]) -> None:
        """Note the errors of messages that can never be sent; they fail."""
        _each(tx, _REFUSED, [(error, seq) for seq, error in errors.items()])

    def mark_held(self, tx: Transaction, errors: Mapping[int, str]) -> None:
        """Note the errors of messages that could not be sent now; they stay pending."""
        _each(tx, _HELD, [(error, seq) for seq, error in errors.items()])

    def next_due_ms(self) -> int | None:
        """When the next confirmation is or was due; None when no message awaits one."""
        with self._read() as tx:
            found = tx.execute("SELECT min(due_ms) FROM headrace_outbox WHERE due_ms IS NOT NULL")
            due_ms: int | None = found.scalar_one()
            return due_ms

    def find_overdue(self, tx: Transaction, sends_max: int, limit: int) -> Overdue:
        """Make unconfirmed messages pending again, or failed after `sends_max` sends."""
        # The condition is in the update too: after waiting for a row, PostgreSQL checks the
        # update's own condition again, but not the inner query's.
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

    def confirm(self, confirmations: Iterable[tuple[str, str | None]]) -> int:
        """Note which group has confirmed which id; returns how many messages that completes.

        Unknown ids, which may belong to another outbox, and repeats change nothing. A
        confirmation without a group counts for a message that awaits one group or any.
        """
        groups: dict[str, list[str | None]] = {}
        for id, group in confirmations:
            groups.setdefault(id, []).append(group)
        if not groups:
            return 0
        with self._begin() as tx:
            # Locked in one order, so that two confirmations do not deadlock.
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
        """How many messages have failed and wait for a person."""
        with self._read() as tx:
            return int(
                tx.execute(
                    "SELECT count(*) FROM headrace_outbox WHERE state = 'failed'"
                ).scalar_one()
            )

    def resend(self, ids: Sequence[str]) -> int:
        """Make messages pending again, with their sends and confirmations reset."""
        return self._resend("id = :id", [{"id": id} for id in ids])

    def resend_failed(self) -> int:
        """Make all failed messages pending again."""
        return self._resend("state = 'failed'", [{}])

    def clean(self, before_ms: int, limit: int = CLEAN_ROWS_MAX) -> int:
        """Remove messages that were sent, and confirmed if needed, before a time."""
        with self._begin() as tx:
            return tx.execute(
                "DELETE FROM headrace_outbox WHERE seq IN (SELECT seq FROM headrace_outbox "
                # Checked twice, for a message that was sent again while this waited for its row.
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


def remaining(waiting: list[str] | None, confirmed_by: Iterable[str | None]) -> list[str] | None:
    """The groups still awaited after these confirmations, or None when all is confirmed.

    An empty `waiting` is satisfied by any group. A confirmation without a group counts when only
    one group is awaited.
    """
    left = waiting
    for group in confirmed_by:
        if left is None or left in ([], [group]) or (group is None and len(left) == 1):
            return None
        left = [name for name in left if name != group]
    return left


def _sql(tx: Transaction, statement: str) -> str:
    mark = "%s" if tx.kind == "postgresql" else "?"
    return statement.format(mark, one_of=one_of(tx.kind), none_of=none_of(tx.kind))


def _each(tx: Transaction, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        tx.driver.executemany(_sql(tx, statement), rows)


def _first(sizes: Iterable[tuple[int, int]], bytes_max: int) -> list[int]:
    """Numbers of the first messages that fit the limit together; always at least one."""
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

"""Sending through the outbox from any application: over the connection of its own transaction.

    from headrace import outbox

    with engine.begin() as connection:                      # or a Session, sqlite3, psycopg
        connection.execute(insert(orders).values(...))
        outbox.send(connection, "orders", order, key=order.id)

The message is sent if, and only if, that transaction commits. A relay then sends it:
`headrace outbox relay --store URL`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from typing import Any

from headrace.client.delayed import After, At
from headrace.store.columns import GivenHeaders
from headrace.store.outgoing import ANY, INSERT, Outgoing, insert_all, outgoing

__all__ = ["ANY", "send", "send_all"]

_DRIVERS = {"sqlite3": "sqlite", "psycopg": "postgresql", "psycopg2": "postgresql"}


def send(
    connection: Any,
    topic: str,
    value: object,
    *,
    key: bytes | str | None = None,
    headers: GivenHeaders = None,
    id: str | None = None,
    confirm_by: str | Sequence[str] = (),
    after: After | None = None,
    at: At | None = None,
) -> str:
    """Put a message into the outbox within the connection's transaction, and return its id.

    The connection is SQLAlchemy's Connection or Session, or a plain one of sqlite3, psycopg or
    psycopg2. `confirm_by` names the groups that must confirm the message, or is "any"; an id that
    the outbox already has is not sent twice. `after` and `at` deliver it later, see
    Producer.send.
    """
    row = outgoing(
        _now_ms(),
        topic,
        value,
        key=key,
        headers=headers,
        id=id,
        confirm_by=confirm_by,
        after=after,
        at=at,
    )
    _insert(connection, [row])
    return row.id


def send_all(
    connection: Any,
    topic: str,
    values: Sequence[object],
    *,
    key: bytes | str | None = None,
    headers: GivenHeaders = None,
    confirm_by: str | Sequence[str] = (),
) -> list[str]:
    """Like `send`, for many values of one topic at once."""
    now_ms = _now_ms()
    rows = [
        outgoing(now_ms, topic, value, key=key, headers=headers, confirm_by=confirm_by)
        for value in values
    ]
    if rows:
        _insert(connection, rows)
    return [row.id for row in rows]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _insert(given: Any, rows: Sequence[Outgoing]) -> None:
    # A session gives the connection of its transaction; a connection begins one by itself.
    connection = given.connection() if callable(getattr(given, "connection", None)) else given
    if hasattr(connection, "exec_driver_sql") and connection.dialect.name in INSERT:
        connection.exec_driver_sql(INSERT[connection.dialect.name], [tuple(row) for row in rows])
        return
    modules = (base.__module__.partition(".")[0] for base in type(connection).__mro__)
    kind = next((_DRIVERS[module] for module in modules if module in _DRIVERS), None)
    if kind is None:
        if inspect.iscoroutine(connection):
            connection.close()
        raise TypeError(
            f"the outbox cannot be written over {type(given).__module__}."
            f"{type(given).__qualname__}: give it SQLAlchemy's Connection or Session, or a "
            "connection of sqlite3, psycopg or psycopg2 (with an AsyncSession: "
            "await session.run_sync(lambda plain: outbox.send(plain, ...)))"
        )
    cursor = connection.cursor()
    try:
        insert_all(cursor, kind, rows)
    finally:
        cursor.close()

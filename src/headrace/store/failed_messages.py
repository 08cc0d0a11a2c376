"""Columns that the tables of failed messages share, and the selection of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Integer,
    String,
    Table,
    Text,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite

from headrace.client.message import Message
from headrace.store.columns import pack_headers, plain_id, unpack_headers
from headrace.store.fingerprints import Failure
from headrace.store.schema import record_columns


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """Which failed messages are meant: by id, handler, source topic and fingerprint."""

    ids: Sequence[str] = ()
    fingerprint: str | None = None
    handler: str | None = None
    topic: str | None = None

    def condition(self, table: Table) -> ColumnElement[bool]:
        """The condition that selected rows of a table meet."""
        condition: ColumnElement[bool] = true()
        if self.ids:
            condition &= table.c.id.in_([plain_id(id) for id in self.ids])
        for name in ("fingerprint", "handler", "topic"):
            wanted = getattr(self, name)
            if wanted is not None:
                condition &= table.c[name] == wanted
        return condition


def message_columns() -> tuple[Column[Any], ...]:
    """The columns of a failed message, unique by handler and id."""
    return (
        Column("handler", String, primary_key=True),
        Column("id", String, primary_key=True),
        *record_columns(),
        Column("attempts", Integer, nullable=False),
        Column("error", Text, nullable=False),
        Column("traceback", Text, nullable=False),
        Column("place", Text, nullable=False),
        Column("fingerprint", String, nullable=False),
    )


def message_values(handler: str, message: Message) -> dict[str, Any]:
    """A message as column values."""
    return {
        "handler": handler,
        "id": plain_id(message.id),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "key": message.key,
        "value": message.value,
        "headers": pack_headers(message.headers),
        "timestamp_ms": message.timestamp_ms,
    }


def failure_values(failure: Failure, attempts: int) -> dict[str, Any]:
    """A failure as column values."""
    return {
        "attempts": attempts,
        "error": failure.error,
        "traceback": failure.traceback,
        "place": failure.place,
        "fingerprint": failure.fingerprint,
    }


def message_of(row: Mapping[Any, Any]) -> Message:
    """The message of a row, numbered for its next attempt."""
    return Message(
        row["topic"],
        row["partition"],
        row["offset"],
        row["key"],
        row["value"],
        unpack_headers(row["headers"]),
        row["timestamp_ms"],
        id=row["id"],
        attempt=row["attempts"] + 1,
    )


def failure_of(row: Mapping[Any, Any]) -> Failure:
    """The failure of a row."""
    return Failure(row["error"], row["traceback"], row["place"], row["fingerprint"])


def insert_into(table: Table, kind: str) -> postgresql.Insert | sqlite.Insert:
    """An insert with ON CONFLICT, which each database has in its own dialect."""
    return postgresql.insert(table) if kind == "postgresql" else sqlite.insert(table)

"""The tables of a store; every name begins with `headrace_`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

METADATA = MetaData()

# SQLite numbers rows only in a column of exactly the type INTEGER.
COUNTER = BigInteger().with_variant(Integer, "sqlite")


def record_columns() -> tuple[Column[Any], ...]:
    """The columns of a consumed record, for the tables that keep messages."""
    return (
        Column("topic", String, nullable=False),
        Column("partition", Integer, nullable=False),
        Column("offset", BigInteger, nullable=False),
        Column("key", LargeBinary),
        Column("value", LargeBinary),
        Column("headers", Text),
        Column("timestamp_ms", BigInteger, nullable=False),
    )


META = Table(
    "headrace_meta",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

INBOX = Table(
    "headrace_inbox",
    METADATA,
    # The id first, so that `headrace inbox find ID` is one look-up for all consumers.
    Column("id", String, primary_key=True),
    Column("consumer", String, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    # SQLite's own row numbers let the table grow at its end only, which doubles claims per second.
    Index("headrace_inbox_at", "at_ms"),
)

OUTBOX = Table(
    "headrace_outbox",
    METADATA,
    Column("seq", COUNTER, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("topic", String, nullable=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("headers", Text),
    Column("state", String, nullable=False),
    # JSON lists of groups, [] for any group; NULL when no group has to confirm.
    Column("confirm_by", Text),
    Column("waiting", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("sends", Integer, nullable=False),
    Column("sent_ms", BigInteger),
    Column("due_ms", BigInteger),
    Column("done_ms", BigInteger),
    Column("error", Text),
)
# Partial indexes stay as small as the remaining work.
for _name, _column, _condition in (
    ("pending", OUTBOX.c.seq, "state = 'pending'"),
    ("failed", OUTBOX.c.seq, "state = 'failed'"),
    ("due", OUTBOX.c.due_ms, "due_ms IS NOT NULL"),
    ("done", OUTBOX.c.done_ms, "done_ms IS NOT NULL"),
):
    Index(
        f"headrace_outbox_{_name}",
        _column,
        sqlite_where=text(_condition),
        postgresql_where=text(_condition),
    )

OFFSETS = Table(
    "headrace_offsets",
    METADATA,
    Column("consumer_group", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    # NULL until the first save.
    Column("next_offset", BigInteger),
    Column("epoch", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)

SPILL = Table(
    "headrace_spill",
    METADATA,
    Column("seq", COUNTER, primary_key=True),
    Column("handler", String, nullable=False),
    Column("id", String, nullable=False),
    *record_columns(),
    Column("at_ms", BigInteger, nullable=False),
    Column("owner", String),
    Column("lease_ms", BigInteger, nullable=False),
    UniqueConstraint("handler", "topic", "partition", "offset"),
    Index("headrace_spill_order", "handler", "seq"),
)

LEASES = Table(
    "headrace_leases",
    METADATA,
    Column("name", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)

"""The row of a message for the outbox, and its insertion through any driver's cursor.

Imports neither SQLAlchemy nor a driver, so that any web application can send.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.client import delayed
from headrace.client.delayed import After, At
from headrace.client.payloads import encode
from headrace.store.columns import GivenHeaders, is_plain, new_id, pack_headers

# In place of group names: any group may confirm.
ANY = "any"
PENDING = "pending"

_COLUMNS = "id, topic, key, value, headers, state, confirm_by, waiting, created_ms, sends"
_INSERT = (
    f"INSERT INTO headrace_outbox ({_COLUMNS}) VALUES ({{0}}, {{0}}, {{0}}, {{0}}, {{0}}, "
    f"'{PENDING}', {{0}}, {{0}}, {{0}}, 0) ON CONFLICT (id) DO NOTHING"
)
INSERT = {"sqlite": _INSERT.format("?"), "postgresql": _INSERT.format("%s")}


class Outgoing(NamedTuple):
    """The columns of a new row."""

    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: str | None
    confirm_by: str | None
    waiting: str | None
    created_ms: int


def outgoing(
    now_ms: int,
    topic: str,
    value: object,
    *,
    key: bytes | str | None = None,
    headers: GivenHeaders = None,
    id: str | None = None,
    confirm_by: str | Sequence[str] = (),
    after: After | None = None,
    at: At | None = None,
) -> Outgoing:
    """The row of a message; ValueError or TypeError if it could never be sent."""
    if not topic:
        raise ValueError("the topic is empty: a message needs the name of its topic")
    due_ms = delayed.deliver_at_ms(now_ms, after, at)
    if due_ms is not None:
        # The relay adds the id, which the delay service uses as well.
        target = (delayed.TARGET_HEADER, topic.encode())
        when = (delayed.AT_HEADER, str(due_ms).encode())
        headers = [*delayed.as_pairs(headers), target, when]
        topic = delayed.DELAY_TOPIC
    if id is None:
        id = new_id(now_ms)
    elif not id or not is_plain(id):
        raise ValueError(f"id {id[:60]!r} must have 1 to 256 characters and no zero byte")
    if isinstance(key, str):
        key = key.encode()
    awaited = _awaited(confirm_by)
    return Outgoing(id, topic, key, encode(value), pack_headers(headers), awaited, awaited, now_ms)


def _awaited(confirm_by: str | Sequence[str]) -> str | None:
    if isinstance(confirm_by, str):
        if confirm_by != ANY:
            raise ValueError(f"confirm_by={confirm_by!r} must be a list of groups or {ANY!r}")
        return "[]"
    return json.dumps(list(dict.fromkeys(confirm_by))) if confirm_by else None


def insert_all(cursor: Any, kind: str, rows: Sequence[Outgoing]) -> None:
    """Insert through a driver's cursor; a row whose id already exists stays as it is."""
    if len(rows) == 1:
        cursor.execute(INSERT[kind], rows[0])
    else:
        cursor.executemany(INSERT[kind], rows)

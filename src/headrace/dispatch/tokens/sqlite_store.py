"""Tokens in an SQLite file, for the processes of one machine: the pure table, kept as one row.

Every exchange is one write transaction, so all processes see the same order. Nothing is synced:
the nodes put back what a power loss takes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.scheduler import Policy, Waiter
from headrace.dispatch.tokens.store import Answer, Fence, StoreStatus, Token, TokenChange
from headrace.dispatch.tokens.token_table import TokenEntry, TokenTable
from headrace.sqlite_files import use_wal

TIMEOUT_SECONDS = 5.0
# Opening waits longer for other processes: a call that fails is repeated, a failed start is not.
OPEN_SECONDS = 30.0
# How often a wait checks whether any process has changed the file.
POLL_SECONDS = 0.002

_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'token_tables'"
_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS token_tables "
    "(topic TEXT PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL)"
)


class SqliteTokens:
    """One topic's tokens in a file; `clock` gives the time in milliseconds."""

    def __init__(
        self,
        path: str | Path,
        topic: str,
        limits: DispatchLimits | None = None,
        policy: Policy = "fair",
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._path = str(path)
        self._topic = topic
        self._limits = limits or DispatchLimits()
        self._policy: Policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        with self._errors():
            self._main = self._open()
            # Waiting threads notice changes through a connection that never writes.
            self._watcher = self._open()
        # The row's content, valid until another process writes it.
        self._table: TokenTable | None = None
        self._version = 0

    def exchange(
        self,
        node: str,
        changes: Sequence[TokenChange] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        query: Sequence[int] = (),
    ) -> Answer:
        """Run one transaction; see TokenStore."""
        with self._writing() as table:
            return table.exchange(
                node, changes, self._clock(), want=want, weight=weight, query=query
            )

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        """Poll the file every two milliseconds; see TokenStore."""
        deadline_s = time.monotonic() + timeout_s
        seen = -1
        while not self._is_closed.is_set():
            try:
                version = self._data_version()
                is_changed, seen = version != seen, version
                if is_changed and self._has_offers(node) and (tokens := self._collect(node)):
                    return tokens
            except TokensUnavailable:
                if not self._is_closed.is_set():
                    raise
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            self._is_closed.wait(min(left_s, POLL_SECONDS))
        return []

    def status(self) -> StoreStatus:
        """All tokens and waiting nodes; see TokenStore."""
        with self._errors(), self._lock:
            table = self._load(self._main)
            return table.status(self._clock())

    def close(self) -> None:
        """Close the connections; see TokenStore."""
        self._is_closed.set()
        with self._lock:
            self._main.close()
            self._watcher.close()

    def _data_version(self) -> int:
        """A number that changes whenever another connection changes the file."""
        with self._errors(), self._lock:
            (version,) = self._watcher.execute("PRAGMA data_version").fetchone()
            return int(version)

    def _has_offers(self, node: str) -> bool:
        with self._errors(), self._lock:
            table = self._load(self._main)
            return any(table.entries[partition].node == node for partition in table.offered)

    def _collect(self, node: str) -> list[Token]:
        with self._writing() as table:
            return table.collect(node, self._clock())

    @contextmanager
    def _writing(self) -> Iterator[TokenTable]:
        with self._errors(), self._lock:
            self._main.execute("BEGIN IMMEDIATE")
            try:
                table = self._load(self._main)
                yield table
                self._main.execute(
                    "INSERT OR REPLACE INTO token_tables VALUES (?, ?, ?)",
                    (self._topic, self._version + 1, _dump(table)),
                )
                self._main.execute("COMMIT")
                self._version += 1
            except BaseException:
                self._table = None
                if self._main.in_transaction:
                    self._main.execute("ROLLBACK")
                raise

    def _load(self, connection: sqlite3.Connection) -> TokenTable:
        row = connection.execute(
            "SELECT version, state FROM token_tables WHERE topic = ?", (self._topic,)
        ).fetchone()
        version, state = row or (0, None)
        if self._table is None or version != self._version:
            table = TokenTable(uuid.uuid4().hex, self._clock(), self._limits, self._policy)
            if state is not None:
                _fill(table, state)
            self._table, self._version = table, version
        return self._table

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=OPEN_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            use_wal(connection, OPEN_SECONDS)
            connection.execute("PRAGMA synchronous=NORMAL")
            if not connection.execute(_HAS_TABLE).fetchone():
                # Takes the write lock first: another process may be creating the table too.
                connection.executescript(f"BEGIN IMMEDIATE; {_CREATE_TABLE}; COMMIT")
            connection.execute(f"PRAGMA busy_timeout = {int(TIMEOUT_SECONDS * 1000)}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise TokensUnavailable(
                f"the tokens in {self._path} are not available: {error}",
                "another process may hold the file; a damaged file may be removed while no node "
                "runs, since nodes put their tokens back",
            ) from error


def _dump(table: TokenTable) -> str:
    scheduler = table.scheduler
    return json.dumps(
        [
            [table.incarnation, table.created_ms, scheduler.last_pass, scheduler.turns],
            [[p, *e.fence, e.state, e.node, e.until_ms] for p, e in table.entries.items()],
            list(table.idle),
            list(table.offered),
            [[n, w.want, w.weight, w.pass_, w.turn] for n, w in scheduler.waiters.items()],
        ]
    )


def _fill(table: TokenTable, state: str) -> None:
    head, entries, idle, offered, waiters = json.loads(state)
    table.incarnation, table.created_ms, table.scheduler.last_pass, table.scheduler.turns = head
    for partition, epoch, next_offset, *rest in entries:
        table.entries[partition] = TokenEntry(Fence(epoch, next_offset), *rest)
    table.idle = dict.fromkeys(idle)
    table.offered = dict.fromkeys(offered)
    table.scheduler.waiters = {name: Waiter(*rest) for name, *rest in waiters}

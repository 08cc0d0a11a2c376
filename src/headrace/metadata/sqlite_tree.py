"""The tree of entries in an SQLite database: plain synchronous calls for one thread."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.metadata.store import (
    ANY_VERSION,
    ROOT,
    BadVersionError,
    Check,
    Create,
    EntryExistsError,
    MetadataEntry,
    NoEntryError,
    NotEmptyError,
    Op,
    SessionExpiredError,
    Set,
    StoreUnavailableError,
    check_op,
    check_path,
    parent_of,
)
from headrace.sqlite_files import use_wal

FORMAT_VERSION = 1
# "HRMD" marks the database, for us and for `file`.
APPLICATION_ID = 0x48524D44
LOCK_WAIT_MS = 5_000

# `stamp` counts changes. An entry keeps the stamp of its last change, and that of the last change
# in its set of children, so that a watch sees a change made by another process, deletes included.
_SCHEMA = """
CREATE TABLE entries (
    path TEXT PRIMARY KEY,
    parent TEXT,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    session_id INTEGER,
    stamp INTEGER NOT NULL,
    children_stamp INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_by_parent ON entries (parent);
CREATE INDEX entries_by_session ON entries (session_id) WHERE session_id IS NOT NULL;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    timeout_ms INTEGER NOT NULL,
    deadline_ms INTEGER NOT NULL
);
CREATE TABLE counter (stamp INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
INSERT INTO entries VALUES ('/', NULL, x'', 0, NULL, 0, 0);
"""

# A deadline further away than the timeout was set before a reboot, which restarted the clock.
_EXPIRED = "deadline_ms <= :now OR deadline_ms > :now + timeout_ms"


class Tree:
    """Entries and sessions in one database file; a change is durable when the call returns."""

    def __init__(self, path: Path, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        # Paths changed by this connection since the last call of `take_touched`.
        self._touched: set[str] = set()
        try:
            self._db = _connect(path)
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the database; the last process to close it merges the write-ahead log."""
        self._db.close()

    def read(self, path: str) -> MetadataEntry | None:
        """The entry at a path, or None."""
        check_path(path)
        self.expire_sessions()
        row = self._one("SELECT data, version, session_id FROM entries WHERE path = ?", path)
        return None if row is None else MetadataEntry(*row)

    def children(self, path: str) -> list[str]:
        """Names of the children of a path."""
        return sorted(self.read_children(path))

    def read_children(self, path: str) -> dict[str, MetadataEntry]:
        """The children of a path by name."""
        if self.read(path) is None:
            raise NoEntryError(path)
        rows = self._db.execute(
            "SELECT path, data, version, session_id FROM entries WHERE parent = ?", (path,)
        )
        return {row[0].rpartition("/")[2]: MetadataEntry(*row[1:]) for row in rows}

    def fingerprint(self, prefix: str) -> tuple[int, int]:
        """A value that changes with any change at or below a path."""
        below = "/" if prefix == ROOT else prefix + "/"
        row = self._one(
            "SELECT count(*), ifnull(max(max(stamp, children_stamp)), -1) FROM entries"
            " WHERE path = ? OR (path >= ? AND path < ?)",
            prefix,
            below,
            below[:-1] + chr(ord("/") + 1),
        )
        assert row is not None
        return row[0], row[1]

    def data_version(self) -> int:
        """A number that changes with a commit of another connection."""
        row = self._one("PRAGMA data_version")
        assert row is not None
        return int(row[0])

    def take_touched(self) -> set[str]:
        """Paths changed through this object since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def multi(self, ops: Sequence[Op]) -> list[int]:
        """Do all operations or none."""
        for op in ops:
            check_op(op)
        self.expire_sessions()
        touched: set[str] = set()
        with self._transaction():
            stamp = self._next_stamp()
            versions = [self._apply(op, stamp, touched) for op in ops]
        self._touched |= touched
        return versions

    def _apply(self, op: Op, stamp: int, touched: set[str]) -> int:
        if isinstance(op, Create):
            return self._create(op, stamp, touched)
        row = self._one("SELECT version, parent FROM entries WHERE path = ?", op.path)
        if row is None:
            raise NoEntryError(op.path)
        version, parent = row
        if op.version not in (ANY_VERSION, version):
            raise BadVersionError(f"{op.path} has version {version}, not {op.version}")
        if isinstance(op, Check):
            return int(version)
        touched.add(op.path)
        if isinstance(op, Set):
            self._db.execute(
                "UPDATE entries SET data = ?, version = version + 1, stamp = ? WHERE path = ?",
                (op.data, stamp, op.path),
            )
            return int(version) + 1
        self._delete(op.path, parent, stamp)
        return -1

    def _create(self, op: Create, stamp: int, touched: set[str]) -> int:
        if op.path == ROOT or self._one("SELECT 1 FROM entries WHERE path = ?", op.path):
            raise EntryExistsError(op.path)
        parent = parent_of(op.path)
        row = self._one("SELECT session_id FROM entries WHERE path = ?", parent)
        if row is None:
            raise NoEntryError(f"{parent}, the parent of {op.path}")
        if row[0] is not None:
            raise NotEmptyError(f"{parent} is ephemeral and cannot have children")
        session_id = None if op.session is None else op.session.id
        if session_id is not None and not self.session_exists(session_id):
            raise SessionExpiredError(f"session {session_id}")
        touched.add(op.path)
        self._db.execute(
            "INSERT INTO entries VALUES (?, ?, ?, 0, ?, ?, ?)",
            (op.path, parent, op.data, session_id, stamp, stamp),
        )
        self._stamp_children(parent, stamp)
        return 0

    def _delete(self, path: str, parent: str | None, stamp: int) -> None:
        if parent is None or self._one("SELECT 1 FROM entries WHERE parent = ? LIMIT 1", path):
            raise NotEmptyError(path)
        self._db.execute("DELETE FROM entries WHERE path = ?", (path,))
        self._stamp_children(parent, stamp)

    def _stamp_children(self, path: str, stamp: int) -> None:
        self._db.execute("UPDATE entries SET children_stamp = ? WHERE path = ?", (stamp, path))

    def begin_session(self, timeout_ms: int) -> int:
        """Start a session; its id is never used again."""
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO sessions (timeout_ms, deadline_ms) VALUES (?, ?)",
                (timeout_ms, self._monotonic_ms() + timeout_ms),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def session_exists(self, session_id: int) -> bool:
        """True while the session has not ended."""
        return self._one("SELECT 1 FROM sessions WHERE id = ?", session_id) is not None

    def renew_session(self, session_id: int) -> bool:
        """Extend the session's deadline; False if it has ended, which is final."""
        self.expire_sessions()
        with self._transaction():
            cursor = self._db.execute(
                "UPDATE sessions SET deadline_ms = ? + timeout_ms WHERE id = ?",
                (self._monotonic_ms(), session_id),
            )
        return cursor.rowcount == 1

    def end_session(self, session_id: int) -> None:
        """End the session and remove its entries."""
        with self._transaction():
            self._end_sessions([session_id])

    def expire_sessions(self) -> None:
        """End every session that is past its deadline."""
        now = {"now": self._monotonic_ms()}
        query = f"SELECT id FROM sessions WHERE {_EXPIRED}"
        if self._db.execute(query, now).fetchone() is None:
            return
        with self._transaction():
            # Check again under the write lock: the owner may have renewed it.
            self._end_sessions([row[0] for row in self._db.execute(query, now).fetchall()])

    def _end_sessions(self, session_ids: Sequence[int]) -> None:
        stamp = self._next_stamp()
        for session_id in session_ids:
            rows = self._db.execute(
                "SELECT path, parent FROM entries WHERE session_id = ?", (session_id,)
            ).fetchall()
            for path, parent in rows:
                self._delete(path, parent, stamp)
                self._touched.add(path)
            self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,))

    def _one(self, query: str, *arguments: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(query, arguments).fetchone()
        return row

    def _next_stamp(self) -> int:
        self._db.execute("UPDATE counter SET stamp = stamp + 1")
        row = self._one("SELECT stamp FROM counter")
        assert row is not None
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # A failed commit (a full disk) leaves the transaction open or has rolled it back.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _connect(path: Path) -> sqlite3.Connection:
    is_new = not path.exists()
    # The connection is opened and used on one thread, but closed on another at exit.
    db = sqlite3.connect(
        path, timeout=LOCK_WAIT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(db, path)
    except BaseException:
        db.close()
        raise
    if is_new:
        _sync_folder(path.parent)
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    use_wal(db, LOCK_WAIT_MS / 1000)
    db.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":
        db.execute("PRAGMA fullfsync = 1")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        # In one transaction, under the write lock: another process may be doing the same.
        db.execute("BEGIN IMMEDIATE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            version = FORMAT_VERSION
        db.execute("COMMIT")
    if version != FORMAT_VERSION:
        raise StoreUnavailableError(
            f"{path}: format {version} is not {FORMAT_VERSION}, the one this release reads;"
            " open it with the release that wrote it"
        )
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreUnavailableError(f"{path}: this is another program's database")


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The database of a store: how SQLite and PostgreSQL are opened, and where they differ."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    RootTransaction,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import StaticPool

from headrace.sqlite_files import use_wal
from headrace.store.errors import StoreError, StoreUnavailable

BUSY_TIMEOUT_MS = 20_000
CONNECT_TIMEOUT_SECONDS = 5
POOL_SIZE = 16
# A key of our own: two processes that create the tables at once take turns by it.
CREATE_LOCK = 0x68656164

_IN_ERROR = 3  # PostgreSQL's PQTRANS_INERROR.
_URLS = "sqlite:///shop.db or postgresql://USER@HOST/NAME"
_ONE_OF = {"sqlite": "IN (SELECT value FROM json_each(?))", "postgresql": "= ANY(%s)"}
_NONE_OF = {"sqlite": "NOT IN (SELECT value FROM json_each(?))", "postgresql": "<> ALL(%s)"}


def one_of(kind: str) -> str:
    """Driver-level SQL: a column is one of `array(kind, values)`.

    Many values are one parameter, so that the statement is always the same.
    """
    return _ONE_OF[kind]


def none_of(kind: str) -> str:
    """Driver-level SQL: a column is none of `array(kind, values)`."""
    return _NONE_OF[kind]


def array(kind: str, values: Sequence[int] | Sequence[str]) -> object:
    """The parameter of `one_of` and `none_of`."""
    return list(values) if kind == "postgresql" else json.dumps(list(values))


class WriterLock:
    """One writer at a time in this process: SQLite itself would sleep and try again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise StoreError(
                "this thread already has a transaction open",
                "use that one; a second one would wait for it forever",
            )
        if not self._lock.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
            raise StoreUnavailable(
                f"another thread has held the database for {BUSY_TIMEOUT_MS // 1000} s",
                "keep slow work out of transactions",
            )
        self._owner = me

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()


class Database:
    """SQLAlchemy's engine, and what differs between the two kinds of database."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.kind = engine.dialect.name
        # Set by a commit that sends messages, so that the relay of this process wakes at once.
        self.sent = threading.Event()
        self._lock = WriterLock()
        self._shared_connection = isinstance(engine.pool, StaticPool)

    def exists(self) -> bool:
        """False for an SQLite file that opening would create."""
        name = self.engine.url.database
        if self.kind != "sqlite" or not name or name == ":memory:" or name.startswith("file:"):
            return True
        return Path(name).exists()

    def turn(self, *, write: bool) -> AbstractContextManager[None]:
        """What a transaction holds while it is open."""
        alone = self.kind == "sqlite" and (write or self._shared_connection)
        return self._lock if alone else nullcontext()

    def connect(self) -> Connection:
        """A connection without a transaction."""
        return self.engine.connect()

    def begin(self, connection: Connection, *, write: bool) -> RootTransaction:
        """Begin on a connection.

        An event of SQLAlchemy would do it too, but make each statement a third slower.
        """
        root = connection.begin()
        if self.kind == "sqlite":
            # A writer locks at once: SQLite may refuse one that reads first and writes later.
            raw: Any = connection.connection.dbapi_connection
            raw.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        return root

    def is_whole(self, connection: Connection) -> bool:
        """Whether the database still has the transaction open, with nothing failed in it.

        A failed statement ends a PostgreSQL transaction, and some errors end an SQLite one. Code
        that swallows such an error would commit nothing, or half, without notice.
        """
        raw: Any = connection.connection.dbapi_connection
        if self.kind == "sqlite":
            return bool(raw.in_transaction)
        return int(raw.info.transaction_status) != _IN_ERROR


def open_database(url: str) -> Database:
    """The database at this URL; it connects when first used."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(f"{url!r} is not the URL of a store", _URLS) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return Database(_sqlite(parsed))
    if backend == "postgresql":
        return Database(_postgres(parsed))
    raise StoreError(f"a store cannot be kept in {backend}", _URLS)


def _sqlite(url: URL) -> Engine:
    options: dict[str, Any] = {"connect_args": {"check_same_thread": False}}
    if url.database in (None, "", ":memory:"):
        options["poolclass"] = StaticPool
    else:
        options.update(pool_size=POOL_SIZE, max_overflow=-1)
    engine = create_engine(url, **options)

    @event.listens_for(engine, "connect")
    def prepare(raw: Any, _record: object) -> None:
        # Otherwise Python's driver begins transactions by itself.
        raw.isolation_level = None
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            use_wal(cursor, BUSY_TIMEOUT_MS / 1000)
        # A commit is on the disk when it returns.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    return engine


def _postgres(url: URL) -> Engine:
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername != "postgresql+psycopg":
        raise StoreError(
            f"the store uses psycopg 3 for PostgreSQL, not {url.get_driver_name()}",
            "postgresql+psycopg://USER@HOST/NAME",
        )
    try:
        return create_engine(
            url,
            pool_size=POOL_SIZE,
            max_overflow=POOL_SIZE,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS},
        )
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "PostgreSQL needs psycopg, which is not installed: pip install 'headrace[postgres]'",
            name=missing.name,
        ) from None

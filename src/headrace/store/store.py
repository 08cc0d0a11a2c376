"""The store: a database with the tables of handlers, opened by its URL."""

from __future__ import annotations

import uuid
from functools import cached_property

from sqlalchemy import inspect

from headrace.client.clock import Clock, SystemClock
from headrace.store.database import CREATE_LOCK, Database, open_database
from headrace.store.dead_letters import DeadLetterIndex
from headrace.store.errors import StoreError
from headrace.store.inbox import Inbox
from headrace.store.offsets import OffsetTable
from headrace.store.outbox import Outbox
from headrace.store.retries import Retries
from headrace.store.schema import META, METADATA
from headrace.store.spill import Spill
from headrace.store.transaction import Transaction

# Importing this module declares all tables.
__all__ = ["METADATA", "Store", "open_store"]

# Raised when a table changes in a way that older code cannot work with.
SCHEMA_VERSION = 1


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store at `sqlite:///FILE` or `postgresql://USER@HOST/NAME`; connects when first used."""
    return Store(open_database(url), clock or SystemClock())


class Store:
    """The tables of one database; safe from many threads."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.clock = clock
        self._database = database
        self.inbox = Inbox(self.begin, self.read)
        self.outbox = Outbox(self.begin, self.read)
        self.offsets = OffsetTable(self.begin, self.read)
        self.spill = Spill(self.begin, self.read)
        self.retries = Retries(self.begin, self.read)
        self.dead_letters = DeadLetterIndex(self.begin, self.read)

    @property
    def kind(self) -> str:
        """The kind of database: "sqlite" or "postgresql"."""
        return self._database.kind

    @property
    def database(self) -> Database:
        """The database itself, with SQLAlchemy's engine."""
        return self._database

    def begin(self) -> Transaction:
        """A transaction to write in: `with store.begin() as tx`."""
        return Transaction(self._database, self.clock.now_ms())

    def read(self) -> Transaction:
        """A transaction that only reads, and waits for no writer."""
        return Transaction(self._database, self.clock.now_ms(), write=False)

    def exists(self) -> bool:
        """Whether the tables exist; creates nothing, not even an SQLite file."""
        if not self._database.exists():
            return False
        with self.read() as tx:
            return bool(inspect(tx.connection).has_table(META.name))

    def create(self) -> None:
        """Create the tables that are missing; durable when it returns, safe to repeat."""
        with self.begin() as tx:
            if tx.kind == "postgresql":
                tx.execute("SELECT pg_advisory_xact_lock(:key)", {"key": CREATE_LOCK})
            METADATA.create_all(tx.connection)
            tx.execute(
                "INSERT INTO headrace_meta (name, value) VALUES ('schema', :schema), ('id', :id) "
                "ON CONFLICT (name) DO NOTHING",
                {"schema": str(SCHEMA_VERSION), "id": uuid.uuid4().hex[:12]},
            )
            found = int(_meta(tx, "schema"))
            if found != SCHEMA_VERSION:
                raise StoreError(
                    f"the store has tables of version {found}, this code needs {SCHEMA_VERSION}",
                    "use the version of headrace that created them, or a new database",
                )

    @cached_property
    def id(self) -> str:
        """A name that this database keeps forever, created with its tables."""
        with self.read() as tx:
            return _meta(tx, "id")

    def close(self) -> None:
        """Close all connections; an open transaction is rolled back."""
        self._database.engine.dispose()


def _meta(tx: Transaction, name: str) -> str:
    found = tx.execute("SELECT value FROM headrace_meta WHERE name = :name", {"name": name})
    return str(found.scalar_one())

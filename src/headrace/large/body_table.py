"""A body store in a database table, with a row for each piece of a body."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    func,
    insert,
    inspect,
    select,
)

from headrace.large.body_store import StoredBody, checked
from headrace.large.errors import BodyMissing, BodyStoreUnavailable
from headrace.large.pieces import cut
from headrace.store.database import CREATE_LOCK, Database, open_database
from headrace.store.errors import StoreUnavailable
from headrace.store.transaction import Transaction

# Each piece is written in its own transaction: a large one would lock out all other writers.
PIECE_BYTES = 1 << 20

METADATA = MetaData()


def _table(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column("name", String, primary_key=True),
        Column("piece", Integer, primary_key=True),
        Column("data", LargeBinary, nullable=False),
    )


# Two tables, since one database may hold both kinds, and their garbage differs: the bodies of claim
# checks expire with their topics, those of messages in the store with their rows.
CLAIMS, KEPT = _table("headrace_large"), _table("headrace_kept")


class BodyTable:
    """A table of bodies, created at the first write."""

    def __init__(self, database: str | Database, pieces: Table = CLAIMS) -> None:
        """In a database by its URL, or in one that is open already and is not closed here."""
        self._pieces = pieces
        self._is_own = isinstance(database, str)
        self._database = open_database(database) if isinstance(database, str) else database
        self._is_created = False

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        self._create()
        for number, piece in enumerate(cut(pieces, PIECE_BYTES)):
            with self._transaction(write=True) as tx:
                tx.execute(insert(self._pieces).values(name=name, piece=number, data=piece))

    def open(self, name: str) -> IO[bytes]:
        first = self.piece(checked(name), 0)
        if first is None:
            raise BodyMissing(
                f"body {name} does not exist in the table {self._pieces.name}",
                "give sender and reader the same claims=URL; check that it was not collected",
            )
        return io.BufferedReader(_Pieces(self, name, first), PIECE_BYTES)

    def piece(self, name: str, number: int) -> bytes | None:
        """One piece of a body; None if it does not exist."""
        its = self._pieces.c
        wanted = (its.name == name) & (its.piece == number)
        with self._transaction(write=False) as tx:
            if not self._exists(tx):
                return None
            found: bytes | None = tx.execute(select(its.data).where(wanted)).scalar()
        return found

    def list(self) -> Iterator[StoredBody]:
        its = self._pieces.c
        statement = select(its.name, func.sum(func.length(its.data))).group_by(its.name)
        with self._transaction(write=False) as tx:
            rows = tx.execute(statement).all() if self._exists(tx) else []
        for name, total in rows:
            yield StoredBody(name, int(total))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._transaction(write=True) as tx:
                if self._exists(tx):
                    tx.execute(delete(self._pieces).where(self._pieces.c.name == name))

    def close(self) -> None:
        if self._is_own:
            self._database.engine.dispose()

    def _create(self) -> None:
        if not self._is_created:
            with self._transaction(write=True) as tx:
                if tx.kind == "postgresql":
                    tx.execute("SELECT pg_advisory_xact_lock(:key)", {"key": CREATE_LOCK})
                METADATA.create_all(tx.connection, [self._pieces])
            self._is_created = True

    def _exists(self, tx: Transaction) -> bool:
        # Reading creates no table: it may happen inside a handler's own transaction.
        self._is_created = self._is_created or inspect(tx.connection).has_table(self._pieces.name)
        return self._is_created

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Transaction]:
        try:
            with Transaction(self._database, 0, write=write) as tx:
                yield tx
        except StoreUnavailable as problem:
            raise BodyStoreUnavailable(
                f"the table {self._pieces.name} cannot be reached: {problem}"
            ) from problem


class _Pieces(io.RawIOBase):
    def __init__(self, claims: BodyTable, name: str, first: bytes) -> None:
        self._claims = claims
        self._name = name
        self._number = 0
        self._left = memoryview(first)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._number += 1
            self._left = memoryview(self._claims.piece(self._name, self._number) or b"")
        room = memoryview(buffer).cast("B")
        size = min(len(room), len(self._left))
        room[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

"""Bodies in a table of a database, a row for each piece."""

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

from headrace.large.claims import Stored, checked
from headrace.large.errors import ClaimMissing, ClaimsAway
from headrace.store.database import CREATE_LOCK, Database, open_database
from headrace.store.errors import StoreUnavailable
from headrace.store.transaction import Transaction

# Each piece is a transaction of its own: a body of a gigabyte in one would keep all others out.
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


# Two, for one database may well be both places, and what is garbage in one is not in the other:
# the bodies of claim checks go with their topics, those of messages put away with their rows.
CLAIMS, KEPT = _table("headrace_large"), _table("headrace_kept")


class SqlClaims:
    """A table of bodies, made when it is first written to."""

    def __init__(self, database: str | Database, pieces: Table = CLAIMS) -> None:
        """By a URL, or in a database that is open already and stays so."""
        self._pieces = pieces
        self._is_own = isinstance(database, str)
        self._database = open_database(database) if isinstance(database, str) else database
        self._is_made = False

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        from headrace.large.pieces import cut

        self._make()
        for number, piece in enumerate(cut(pieces, PIECE_BYTES)):
            with self._turn(write=True) as tx:
                tx.execute(insert(self._pieces).values(name=name, piece=number, data=piece))

    def open(self, name: str) -> IO[bytes]:
        first = self.piece(checked(name), 0)
        if first is None:
            raise ClaimMissing(
                f"there is no body {name} in the table {self._pieces.name}",
                "do sender and reader have the same claims=URL? was it collected as garbage?",
            )
        return io.BufferedReader(_Pieces(self, name, first), PIECE_BYTES)

    def piece(self, name: str, number: int) -> bytes | None:
        """One piece of a body, if there is one."""
        its = self._pieces.c
        wanted = (its.name == name) & (its.piece == number)
        with self._turn(write=False) as tx:
            if not self._is_there(tx):
                return None
            found: bytes | None = tx.execute(select(its.data).where(wanted)).scalar()
        return found

    def list(self) -> Iterator[Stored]:
        its = self._pieces.c
        statement = select(its.name, func.sum(func.length(its.data))).group_by(its.name)
        with self._turn(write=False) as tx:
            rows = tx.execute(statement).all() if self._is_there(tx) else []
        for name, total in rows:
            yield Stored(name, int(total))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._turn(write=True) as tx:
                if self._is_there(tx):
                    tx.execute(delete(self._pieces).where(self._pieces.c.name == name))

    def close(self) -> None:
        if self._is_own:
            self._database.engine.dispose()

    def _make(self) -> None:
        if not self._is_made:
            with self._turn(write=True) as tx:
                if tx.kind == "postgresql":
                    tx.execute("SELECT pg_advisory_xact_lock(:key)", {"key": CREATE_LOCK})
                METADATA.create_all(tx.connection, [self._pieces])
            self._is_made = True

    def _is_there(self, tx: Transaction) -> bool:
        # A look makes no table: it may be inside a handler's own transaction.
        self._is_made = self._is_made or inspect(tx.connection).has_table(self._pieces.name)
        return self._is_made

    @contextmanager
    def _turn(self, *, write: bool) -> Iterator[Transaction]:
        try:
            with Transaction(self._database, 0, write=write) as tx:
                yield tx
        except StoreUnavailable as problem:
            raise ClaimsAway(f"the table of bodies cannot be reached: {problem}") from problem


class _Pieces(io.RawIOBase):
    def __init__(self, claims: SqlClaims, name: str, first: bytes) -> None:
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

"""One database transaction: a handler's writes, its inbox rows and what it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, CursorResult, Executable, RootTransaction, TextClause, text
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.delayed import CANCEL_HEADER, DELAY_TOPIC, After, At
from headrace.store.columns import GivenHeaders
from headrace.store.errors import TransactionBroken, is_foreign, unavailable
from headrace.store.outgoing import Outgoing, insert_all, outgoing

if TYPE_CHECKING:
    from headrace.store.database import Database

Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Transaction:
    """A transaction as a context manager: committed at its end, rolled back by an exception.

    `connection` is SQLAlchemy's, for anything but ending the transaction. Passing errors of the
    database come out of the `with` block as StoreUnavailable, and then nothing was committed. One
    thread uses it at a time.
    """

    __slots__ = (
        "_cursor", "_database", "_has_sent", "_now_ms", "_root", "_sends", "_turn", "_write",
        "connection",
    )  # fmt: skip

    connection: Connection
    _root: RootTransaction

    def __init__(self, database: Database, now_ms: int, *, write: bool = True) -> None:
        self._database = database
        self._now_ms = now_ms
        self._write = write
        self._turn: AbstractContextManager[None] = database.turn(write=write)
        self._cursor: Any = None
        self._sends: list[Outgoing] = []
        self._has_sent = False

    @property
    def kind(self) -> str:
        """The kind of database: "sqlite" or "postgresql"."""
        return self._database.kind

    @property
    def now_ms(self) -> int:
        """The time at which it began, on the store's clock."""
        return self._now_ms

    @property
    def driver(self) -> Any:
        """A cursor of sqlite3 or psycopg itself, many times faster for small statements."""
        if self._cursor is None:
            self._cursor = self.connection.connection.cursor()
        return self._cursor

    def execute(
        self, statement: Executable | str, parameters: Parameters | None = None
    ) -> CursorResult[*tuple[Any, ...]]:
        """Run a statement of SQLAlchemy, or SQL text with `:name` parameters."""
        if isinstance(statement, str):
            statement = _text(statement)
        return self.connection.execute(statement, parameters)

    def send(
        self,
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
        """Put a message into the outbox and return its id; sent once this is committed.

        `confirm_by` names the groups that must confirm it, or is "any"; an id that the outbox
        already has is not sent twice. `after` and `at` deliver it later, see Producer.send.
        """
        row = outgoing(
            self._now_ms,
            topic,
            value,
            key=key,
            headers=headers,
            id=id,
            confirm_by=confirm_by,
            after=after,
            at=at,
        )
        self._sends.append(row)
        return row.id

    def cancel_delayed(self, id: str) -> str:
        """Cancel a delayed message by its id once this is committed, and return the command's id.

        Without effect if the message has been delivered by then.
        """
        return self.send(DELAY_TOPIC, None, headers=[(CANCEL_HEADER, id)])

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part that an exception undoes alone; the exception is raised on, the rest stays."""
        self.flush()
        with self.connection.begin_nested():
            try:
                yield
                self.flush()
            except BaseException:
                self._sends.clear()
                raise

    def flush(self) -> None:
        """Write what `send` has gathered; the commit does it too."""
        if self._sends:
            rows, self._sends = self._sends, []
            self._has_sent = True
            insert_all(self.driver, self.kind, rows)

    def __enter__(self) -> Self:
        self._turn.__enter__()
        try:
            self.connection = self._database.connect()
            try:
                self._root = self._database.begin(self.connection, write=self._write)
            except BaseException:
                self.connection.close()
                raise
        except BaseException as error:
            self._turn.__exit__(None, None, None)
            raise_known(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._commit()
            else:
                self._roll_back()
                # A handler's error with a database of its own says nothing about the store.
                if not (self._write and is_foreign(error, self.kind)):
                    raise_known(error)
        finally:
            try:
                self._close()
            finally:
                self._turn.__exit__(None, None, None)

    def _commit(self) -> None:
        try:
            self.flush()
            if self.connection.get_transaction() is not self._root:
                raise TransactionBroken(
                    "the transaction was ended inside its block",
                    "leave commit and rollback to the `with` block or the handler's end",
                )
            if not self._database.is_whole(self.connection):
                raise TransactionBroken(
                    "a statement failed inside the transaction and its error was swallowed, so "
                    "the database has undone all of it",
                    "let the error through, or try the statement inside tx.savepoint()",
                )
            self._root.commit()
            if self._has_sent:
                self._database.sent.set()
        except BaseException as error:
            self._roll_back()
            raise_known(error)
            raise

    def _roll_back(self) -> None:
        try:
            if self._root.is_active:
                self._root.rollback()
        except Exception:
            # The connection is gone, and with it the transaction; the first error says why.
            self.connection.invalidate()

    def _close(self) -> None:
        try:
            if self._cursor is not None:
                self._cursor.close()
            self.connection.close()
        except SQLAlchemyError:
            self.connection.invalidate()


class StoreTable:
    """A table of the store, with how to write and read it in transactions of its own."""

    def __init__(self, begin: Callable[[], Transaction], read: Callable[[], Transaction]) -> None:
        self._begin = begin
        self._read = read


def raise_known(error: BaseException) -> None:
    """Raise StoreUnavailable in place of a passing error of the database."""
    known = unavailable(error)
    if known is not None and known is not error:
        raise known from error


@lru_cache(maxsize=512)
def _text(statement: str) -> TextClause:
    return text(statement)

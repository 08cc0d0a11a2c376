"""Errors of the store, and the one place where a database's errors become them."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import exc

from headrace.errors import HeadraceError, Unavailable


class StoreError(HeadraceError):
    """Something is wrong with the store or its use."""


class StoreUnavailable(StoreError, Unavailable):
    """The database cannot do it now; nothing was committed, so the same may be tried again.

    One exception: after a connection lost during COMMIT, it may have happened. Trying again is
    right in both cases, because the inbox row shows which it was.
    """


class TransactionBroken(StoreError):
    """The database ended the transaction inside the `with` block; nothing was committed."""


class Fenced(StoreError, Unavailable):
    """A newer owner has taken over; what this one wrote was rolled back."""


# By SQLite's primary result code. Code 1 (SQL logic error: no such table) is the caller's error.
_SQLITE_HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds the database; a retry follows",
    sqlite3.SQLITE_LOCKED: "another connection holds the table; a retry follows",
    sqlite3.SQLITE_NOMEM: "the process is out of memory",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: give this user write access "
    "to both; work then continues by itself",
    sqlite3.SQLITE_IOERR: "the disk failed or is gone: check the system's log",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a copy",
    sqlite3.SQLITE_FULL: "the disk is full: free some space; work then continues by itself",
    sqlite3.SQLITE_CANTOPEN: "does the folder exist, and may this user write there?",
    sqlite3.SQLITE_PROTOCOL: "another process holds the database; a retry follows",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
}
# By SQLSTATE, whole or its class.
_POSTGRES_HINTS = {
    "08": "is PostgreSQL running and reachable?",
    "25006": "the server refuses writes: is it a standby, or set read-only?",
    "28": "check user and password in the store's URL, and pg_hba.conf",
    "3D000": "create the database first: createdb NAME",
    "40001": "another transaction came first; a retry follows",
    "40P01": "two transactions waited for each other; a retry follows",
    "53100": "the server's disk is full: free some space; work then continues by itself",
    "53": "the server is at a limit: see max_connections and its memory",
    "57P": "the server is stopping or starting; a retry follows",
    "58": "the server's disk failed: check its log",
}
_UNREACHABLE_HINT = "is PostgreSQL running and reachable?"


def unavailable(error: BaseException) -> StoreUnavailable | None:
    """This error as StoreUnavailable if a later retry may help, else None."""
    if isinstance(error, StoreUnavailable):
        return error
    if isinstance(error, exc.TimeoutError):
        return StoreUnavailable(
            "no connection to the database became free",
            "transactions stay open too long, or too many threads share the store",
        )
    original: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        hint = _SQLITE_HINTS.get(code & 0xFF) if code is not None else None
    elif _is_of_psycopg(original):
        hint = _postgres_hint(original)
    else:
        hint = None
    if hint is None:
        return None
    # The server's message may continue with details and a position; the first line is enough.
    first_line = str(original).partition("\n")[0]
    return StoreUnavailable(f"the store is not available: {first_line}", hint)


def is_foreign(error: BaseException, kind: str) -> bool:
    """Whether an error inside a writing transaction must come from another database."""
    original: Any = error.orig if isinstance(error, exc.DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        # The store's own transaction has SQLite's lock from the start, so it is never busy.
        is_busy = code is not None and code & 0xFF == sqlite3.SQLITE_BUSY
        return kind != "sqlite" or is_busy
    return kind == "sqlite" and _is_of_psycopg(original)


def _is_of_psycopg(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "psycopg"


def _postgres_hint(error: Any) -> str | None:
    state = getattr(error, "sqlstate", None)
    if state is None:
        # Without a state the client raised it: a connection refused, lost or closed.
        names = {kind.__name__ for kind in type(error).__mro__}
        return _UNREACHABLE_HINT if names & {"OperationalError", "InterfaceError"} else None
    return next(
        (_POSTGRES_HINTS[state[:size]] for size in (5, 3, 2) if state[:size] in _POSTGRES_HINTS),
        None,
    )

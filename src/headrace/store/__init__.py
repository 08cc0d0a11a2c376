"""The tables of handlers, in SQLite or PostgreSQL.

`store.py` opens a database by its URL, and `database.py` knows how the kinds of database differ.
`transaction.py` is one transaction, `schema.py` declares the tables, and each table has a module:
`inbox.py`, `outbox.py` (rows made by `outgoing.py`), `offsets.py`, `spill.py`, `retries.py`,
`dead_letters.py` (the last two share `failed_messages.py` and `fingerprints.py`), `leases.py`.
`columns.py` says how ids and headers are kept, `errors.py` translates the databases' errors once,
and `redis_inbox.py` is an inbox for effects that are in no database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.store.errors import Fenced as Fenced
    from headrace.store.errors import StoreError as StoreError
    from headrace.store.errors import StoreUnavailable as StoreUnavailable
    from headrace.store.errors import TransactionBroken as TransactionBroken
    from headrace.store.inbox import Inbox as Inbox
    from headrace.store.offsets import OffsetTable as OffsetTable
    from headrace.store.outbox import Outbox as Outbox
    from headrace.store.spill import Spill as Spill
    from headrace.store.store import METADATA as METADATA
    from headrace.store.store import Store as Store
    from headrace.store.store import open_store as open_store
    from headrace.store.transaction import Transaction as Transaction
else:
    _get, __dir__ = lazy_names(
        __name__,
        errors="Fenced StoreError StoreUnavailable TransactionBroken",
        inbox="Inbox",
        offsets="OffsetTable",
        outbox="Outbox",
        spill="Spill",
        store="METADATA Store open_store",
        transaction="Transaction",
    )

    def __getattr__(name: str) -> object:
        # A web application that only writes to its outbox over a plain connection, and handlers
        # without tables, do not need SQLAlchemy.
        try:
            return _get(name)
        except ModuleNotFoundError as missing:
            if missing.name != "sqlalchemy":
                raise
            raise ModuleNotFoundError(
                "tables need SQLAlchemy, which is not installed: pip install 'headrace[handlers]'",
                name=missing.name,
            ) from None

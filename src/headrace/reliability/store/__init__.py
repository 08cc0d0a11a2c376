"""The tables of the reliability layer, in SQLite or PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.reliability.store.errors import (
        Fenced,
        StoreError,
        StoreUnavailable,
        TransactionBroken,
    )
    from headrace.reliability.store.inbox import Inbox
    from headrace.reliability.store.offsets import OffsetTable
    from headrace.reliability.store.outbox import Outbox
    from headrace.reliability.store.spill import Spill
    from headrace.reliability.store.store import METADATA, Store, open_store
    from headrace.reliability.store.transaction import Transaction

__all__ = [
    "METADATA",
    "Fenced",
    "Inbox",
    "OffsetTable",
    "Outbox",
    "Spill",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Transaction",
    "TransactionBroken",
    "open_store",
]

_HOMES = {
    "METADATA": "store",
    "Fenced": "errors",
    "Inbox": "inbox",
    "OffsetTable": "offsets",
    "Outbox": "outbox",
    "Spill": "spill",
    "Store": "store",
    "StoreError": "errors",
    "StoreUnavailable": "errors",
    "Transaction": "transaction",
    "TransactionBroken": "errors",
    "open_store": "store",
}


def __getattr__(name: str) -> object:
    # A web application that only writes to its outbox over a plain connection, and handlers
    # without tables, do not need SQLAlchemy.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "sqlalchemy":
            raise
        raise ModuleNotFoundError(
            "tables need SQLAlchemy, which is not installed: pip install 'headrace[handlers]'",
            name=missing.name,
        ) from None

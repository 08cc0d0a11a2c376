"""The SQL of the handlers with a database: the same text for all rivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from benchmarks.rivals.work import Order

TABLES = (
    "CREATE TABLE IF NOT EXISTS bills (order_id INTEGER, amount INTEGER)",
    "CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, amount INTEGER)",
)
EFFECT = "INSERT INTO bills (order_id, amount) VALUES (?, ?)"

_BILL = text("INSERT INTO bills (order_id, amount) VALUES (:id, :amount)")
_TOTAL = text(
    "INSERT INTO totals (customer, amount) VALUES (:customer, :amount) "
    "ON CONFLICT (customer) DO UPDATE SET amount = amount + excluded.amount"
)


def own_statements(execute: Callable[..., Any], order: Order, count: int) -> None:
    """So many statements of a handler's own, half of them inserts and half updates."""
    for _ in range(count // 2):
        execute(_BILL, {"id": order.id, "amount": order.amount})
        execute(_TOTAL, {"customer": order.customer, "amount": order.amount})

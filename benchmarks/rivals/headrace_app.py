"""Headrace's own handlers, written as the docs show them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from benchmarks.rivals.statements import EFFECT, TABLES, own_statements
from benchmarks.rivals.work import FETCH_WAIT_MS, Load, Meter, Order, given, sleep_s
from headrace.handlers.app import App
from headrace.store import Transaction

_LANES = 64
_BATCH = 500


def make_app(load: Load, meter: Meter) -> App:
    """An app with the one handler that the load asks for."""
    has_store = load.work in ("insert", "statements")
    app = App(
        load.bootstrap,
        store=f"sqlite:///{load.database}" if has_store else None,
    )
    options: dict[str, Any] = {
        "group": load.group,
        "start": "earliest",
        "settings": {"fetch.max.wait.ms": FETCH_WAIT_MS},
    }
    if load.mode == "batches":
        options["batch"] = _BATCH
    elif load.mode == "key":
        options.update(order="key", lanes=_LANES)
    app.handler(load.topic, **options)(_handler(load, meter))
    return app


def _handler(load: Load, meter: Meter) -> Callable[..., Any]:
    count = meter.count

    def counts(order: Order) -> None:
        count()

    async def counts_async(order: Order) -> None:
        count()

    def counts_batch(orders: list[Order]) -> None:
        for _ in orders:
            count()

    def sleeps(order: Order) -> None:
        if order.work_us:
            time.sleep(sleep_s(order))
        count()

    def inserts(order: Order, tx: Transaction) -> None:
        tx.driver.execute(EFFECT, (order.id, order.amount))
        count()

    def works(order: Order, tx: Transaction) -> None:
        own_statements(tx.execute, order, load.statements)
        count()

    by_work: dict[str, Callable[..., Any]] = {
        "sleep": sleeps,
        "hot": sleeps,
        "insert": inserts,
        "statements": works,
    }
    by_mode: dict[str, Callable[..., Any]] = {"async": counts_async, "batches": counts_batch}
    return by_work.get(load.work) or by_mode.get(load.mode) or counts


def main() -> None:
    load = given()
    meter = Meter(load)
    if load.database:
        with sqlite3.connect(load.database) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            for table in TABLES:
                connection.execute(table)
        connection.close()
    with make_app(load, meter):
        meter.wait()
    meter.tell()


if __name__ == "__main__":
    main()

"""Exactly-once effects by hand on SQLite (synchronous FULL): a table of ids beside the effect.

Through the driver for the cheap handler, through SQLAlchemy where its own statements dominate, as
the handler has it. `grouped` puts 200 messages into a transaction, which nobody writes by hand: it
does not survive a message that fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException
from sqlalchemy import Connection, create_engine, event, text

from benchmarks.rivals.statements import EFFECT, TABLES, own_statements
from benchmarks.rivals.work import (
    Load,
    Meter,
    Order,
    consumer_settings,
    decode_order,
    given,
)

_GROUP = 200
_CLAIM = "INSERT OR IGNORE INTO seen (id) VALUES (?)"


def main() -> None:
    load = given()
    meter = Meter(load)
    consumer = Consumer({**consumer_settings(load), "enable.auto.offset.store": False})
    consumer.subscribe([load.topic])
    if load.mode == "grouped":
        _grouped(load, meter, consumer)
    else:
        handle = _through_sqlalchemy(load) if load.work == "statements" else _through_driver(load)
        over = False
        while not over:
            message = consumer.poll(1.0)
            if message is not None:
                value = _value(message)
                handle(f"{message.topic()}/{message.partition()}/{message.offset()}", value)
                consumer.store_offsets(message)
                over = meter.count()
    consumer.close()
    meter.tell()


def connect(load: Load) -> sqlite3.Connection:
    """SQLite as a careful user opens it: WAL, every commit synced, transactions by hand."""
    connection = sqlite3.connect(load.database, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY) WITHOUT ROWID")
    for table in TABLES:
        connection.execute(table)
    return connection


def _through_driver(load: Load) -> Callable[[str, bytes], None]:
    connection = connect(load)

    def handle(id: str, value: bytes) -> None:
        order = decode_order(value)
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute(_CLAIM, (id,)).rowcount:
            connection.execute(EFFECT, (order.id, order.amount))
        connection.execute("COMMIT")

    return handle


def _through_sqlalchemy(load: Load) -> Callable[[str, bytes], None]:
    connect(load).close()
    engine = create_engine(f"sqlite:///{load.database}")

    @event.listens_for(engine, "connect")
    def _synced(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous=FULL")

    claim = text("INSERT OR IGNORE INTO seen (id) VALUES (:id)")

    def handle(id: str, value: bytes) -> None:
        order: Order = decode_order(value)
        transaction: Connection
        with engine.begin() as transaction:
            if transaction.execute(claim, {"id": id}).rowcount:
                own_statements(transaction.execute, order, load.statements)

    return handle


def _grouped(load: Load, meter: Meter, consumer: Consumer) -> None:
    connection = connect(load)
    over = False
    while not over:
        messages = consumer.consume(_GROUP, 0.2)
        if not messages:
            continue
        connection.execute("BEGIN IMMEDIATE")
        for message in messages:
            order = decode_order(_value(message))
            id = f"{message.topic()}/{message.partition()}/{message.offset()}"
            if connection.execute(_CLAIM, (id,)).rowcount:
                connection.execute(EFFECT, (order.id, order.amount))
        connection.execute("COMMIT")
        for _ in messages:
            over = meter.count()
        consumer.commit(asynchronous=True)


def _value(message: Any) -> bytes:
    if message.error() is not None:
        raise KafkaException(message.error())
    value: bytes = message.value()
    return value


if __name__ == "__main__":
    main()

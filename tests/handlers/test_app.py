"""An app from a record to its effect: sync, async, typed, on every pair of Kafka and database."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer
from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select
from tests.client.kafkas import LIVELY
from tests.handlers.running import committed, read_all, send
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.client.errors import UnknownGroupHistory
from headrace.client.message import Message
from headrace.handlers import App, Retry
from headrace.store import Transaction
from headrace.telemetry.alarms import Alarm

_metadata = MetaData()
bills = Table(
    "bills",
    _metadata,
    Column("order_id", Integer),
    Column("note", String),
)


class Order(msgspec.Struct):
    """What a record of these tests says."""

    id: int


class Receipt(msgspec.Struct):
    """What is sent for it."""

    order_id: int


def orders(count: int, first: int = 0) -> list[bytes]:
    return [b'{"id":%d}' % number for number in range(first, first + count)]


def app_with_bills(pair: Pair) -> App:
    app = App(pair.bootstrap, store=pair.store_url)
    assert app.context.store is not None
    with app.context.store.begin() as tx:
        _metadata.create_all(tx.connection)
    return app


def billed(app: App) -> list[int]:
    """The orders that have a bill; the app must be running."""
    assert app.context.store is not None
    with app.context.store.read() as tx:
        return sorted(tx.execute(select(bills.c.order_id)).scalars())


def test_a_message_its_effect_and_what_it_sends_are_one_transaction(any_pair: Pair) -> None:
    topic, receipts = any_pair.topic("orders"), any_pair.topic("receipts")
    send(any_pair.bootstrap, topic, orders(40), key=lambda n: b"%d" % (n % 5))
    app = app_with_bills(any_pair)
    failed_once: set[int] = set()

    @app.handler(topic, group="billing", order="key", retry=Retry(in_place=2, delay="1ms"))
    def bill(order: Order, tx: Transaction) -> None:
        tx.execute(insert(bills).values(order_id=order.id))
        tx.send(receipts, Receipt(order.id), key=str(order.id))
        if order.id % 10 == 3 and order.id not in failed_once:
            failed_once.add(order.id)
            raise ValueError("after the writes, before the commit")

    with app:
        wait_until(lambda: billed(app) == list(range(40)), "bills")
        records = read_all(any_pair.bootstrap, receipts, 40)
        assert sorted(int(record.key()) for record in records) == list(range(40))
    assert committed(any_pair.bootstrap, "billing", topic) == 40


def test_a_handler_may_be_async(pair: Pair) -> None:
    topic = pair.topic("orders", 2)
    send(pair.bootstrap, topic, orders(200), key=lambda n: b"%d" % (n % 20))
    app = app_with_bills(pair)
    seen: list[int] = []
    at_once = [0, 0]

    @app.handler(topic, group="plain", order="key", lanes=8)
    async def watch(order: Order, message: Message) -> None:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0.001)
        at_once[0] -= 1
        assert message.topic == topic
        seen.append(order.id)

    @app.handler(topic, group="in-transaction", order="key")
    async def bill(order: Order, tx: Transaction) -> None:
        await asyncio.sleep(0)
        tx.execute(insert(bills).values(order_id=order.id))

    with app:
        wait_until(lambda: len(seen) >= 200, "plain")
        wait_until(lambda: billed(app) == list(range(200)), "in a transaction")
    assert sorted(seen) == list(range(200))
    assert 2 <= at_once[1] <= 8


def test_a_handler_may_ask_for_the_message_and_its_attempt(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"hello"], key=lambda _: b"k", headers=lambda _: [("h", b"1")])
    app = App(pair.bootstrap)
    seen: list[Message] = []

    @app.handler(topic, group="g", retry=Retry(in_place=2, delay="1ms"))
    def look(message: Message) -> None:
        seen.append(message)
        if len(seen) < 3:
            raise ValueError("not yet")

    with app:
        wait_until(lambda: len(seen) == 3)
    assert [message.attempt for message in seen] == [1, 2, 3]
    last = seen[-1]
    assert (last.topic, last.partition, last.offset, last.key, last.value) == (
        topic, 0, 0, b"k", b"hello"
    )  # fmt: skip
    assert last.header("h") == b"1"
    assert last.id == f"{topic}/0/0"
    assert last.timestamp_ms > 1_600_000_000_000


def test_an_app_starts_again_where_it_stopped(pair: Pair) -> None:
    topic = pair.topic("orders")
    app = App(pair.bootstrap)
    seen: list[int] = []

    @app.handler(topic, group="g")
    def look(order: Order) -> None:
        seen.append(order.id)

    for first in (0, 10, 20):
        send(pair.bootstrap, topic, orders(10, first))
        with app:
            wait_until(lambda last=first: len(seen) >= last + 10)  # type: ignore[misc]
    assert seen == list(range(30))


def test_an_app_sends_and_rings_alarms(pair: Pair) -> None:
    topic = pair.topic("orders")
    app = App(pair.bootstrap)
    alarms: list[Alarm] = []

    @app.on_alarm
    def on_alarm(alarm: Alarm) -> None:
        alarms.append(alarm)
        raise RuntimeError("a callback that fails harms nobody")

    @app.handler(topic, group="g")
    def refuse(order: Order) -> None:
        raise ValueError("never")

    with app:
        app.send(topic, Order(1), key="k").result(10)
        wait_until(lambda: alarms)
    assert alarms[0].name == "dead-letter"
    (letter,) = read_all(pair.bootstrap, f"{topic}.dlq", 1)
    assert letter.value() == b'{"id":1}'


def test_a_group_that_is_new_to_a_long_history_stops_the_app_with_a_hint(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, orders(20))
    app = App(pair.bootstrap, settings={"headrace.history.records": 10})

    @app.handler(topic, group="misspelt")
    def look(order: Order) -> None: ...

    with pytest.raises(UnknownGroupHistory, match="20"):
        app.run()


def test_stop_waits_for_the_message_at_work_and_commits_it(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, orders(100))
    app = App(pair.bootstrap)
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    @app.handler(topic, group="g")
    def work(order: Order) -> None:
        begun.set()
        assert go_on.wait(30)
        seen.append(order.id)

    app.start()
    assert begun.wait(30)
    stopping = threading.Thread(target=app.stop)
    stopping.start()
    go_on.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert seen
    assert committed(pair.bootstrap, "g", topic) == len(seen)


def test_processes_of_one_group_share_the_partitions(pair: Pair) -> None:
    topic = pair.topic("orders", 4)
    apps: list[App] = []
    seen: list[dict[int, int]] = []
    for _ in range(2):
        app = App(pair.bootstrap, settings=LIVELY)
        mine: dict[int, int] = {}

        def count(message: Message, mine: dict[int, int] = mine) -> None:
            mine[message.partition] = mine.get(message.partition, 0) + 1

        app.handler(topic, group="g", name="count")(count)
        apps.append(app)
        seen.append(mine)
    for app in apps:
        app.start()
    try:
        wait_until(lambda: all(_tracks(app) == 2 for app in apps), "two partitions each")
        for partition in range(4):
            send(pair.bootstrap, topic, orders(10), partition=partition)
        wait_until(lambda: sum(sum(mine.values()) for mine in seen) >= 40)
    finally:
        for app in apps:
            app.stop()
    assert all(mine for mine in seen)


def _tracks(app: App) -> int:
    (runner,) = app.runners
    return runner.partitions


def test_a_plain_consumer_sees_what_the_group_has_committed(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, orders(5))
    app = App(pair.bootstrap)
    seen: list[Any] = []
    app.handler(topic, group="g", name="look")(lambda order: seen.append(order))
    with app:
        wait_until(lambda: len(seen) == 5)
    consumer = Consumer({"bootstrap.servers": pair.bootstrap, "group.id": "g", "log_level": 0})
    consumer.subscribe([topic])
    send(pair.bootstrap, topic, orders(1, 5))
    record = consumer.poll(30)
    consumer.close()
    assert record.offset() == 5

"""Bad input and absent parts: nothing is lost, and the consumer lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from sqlalchemy import Column, Integer, MetaData, Table, insert, select
from tests.handlers.running import committed, read_all, send
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.handlers import App, Retry
from headrace.store import Store, StoreUnavailable, Transaction
from headrace.telemetry.alarms import Alarm

_metadata = MetaData()
effects = Table("effects", _metadata, Column("number", Integer))


class Opened(msgspec.Struct, tag="opened"):
    """One kind of message."""

    id: int


class Closed(msgspec.Struct, tag="closed"):
    """The other kind."""

    id: int


def new_app(pair: Pair) -> App:
    app = App(pair.bootstrap, store=pair.store_url)
    assert app.context.store is not None
    with app.context.store.begin() as tx:
        _metadata.create_all(tx.connection)
    return app


def test_undecodable_unknown_and_nameless_messages_are_dead_letters(pair: Pair) -> None:
    topic = pair.topic("accounts")
    values = [
        b'{"type":"opened","id":1}',
        b"\xff\xfe",
        b'{"type":"vanished","id":2}',
        None,
        b'{"type":"closed"}',
        b'{"type":"opened","id":3}',
        b'{"type":"closed","id":1}',
    ]
    send(
        pair.bootstrap,
        topic,
        values,
        headers=lambda n: None if n == 5 else [("account-id", b"%d" % n)],
    )
    app = new_app(pair)
    seen: list[object] = []

    @app.handler(
        topic,
        group="g",
        id="header:account-id",
        retry=Retry(in_place=5, delay="10s"),
    )
    def work(event: Opened | Closed, tx: Transaction) -> None:
        seen.append(event)

    with app:
        letters = read_all(pair.bootstrap, f"{topic}.dlq", 5)
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 7)
    assert seen[-1] == Closed(1)
    assert Opened(1) in seen
    why = [dict(letter.headers())["headrace-error"].decode() for letter in letters]
    assert "Invalid value 'vanished'" in why[1]
    assert "to get tombstones" in why[2]
    assert "missing required field" in why[3]
    assert "has no header 'account-id'" in why[4]
    assert [letter.value() for letter in letters] == [values[n] for n in (1, 2, 3, 4, 5)]


@contextmanager
def away(store: Store) -> Iterator[threading.Event]:
    """Make a store unavailable for the block; the event says that somebody has asked it."""
    asked = threading.Event()
    real = store.begin

    def refuse() -> Transaction:
        asked.set()
        raise StoreUnavailable("the store is not available: as if", "wait")

    store.begin = refuse  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        store.begin = real  # type: ignore[method-assign]


def test_a_store_that_is_unavailable_is_waited_for(pair: Pair) -> None:
    topic = pair.topic("orders", 2)
    app = new_app(pair)
    alarms: list[Alarm] = []
    app.on_alarm(alarms.append)
    runs: list[int] = []

    @app.handler(topic, group="g", order="key")
    def work(number: int, tx: Transaction) -> None:
        runs.append(number)
        tx.execute(insert(effects).values(number=number))

    with app:
        store = app.context.store
        assert store is not None
        assert app.runners[0].ready.wait(30)
        with away(store) as asked:
            send(pair.bootstrap, topic, [b"%d" % n for n in range(50)], key=lambda n: b"%d" % n)
            assert asked.wait(30)
            wait_until(lambda: any(alarm.name == "handler-waits" for alarm in alarms))
            assert not runs
        wait_until(
            lambda: sum(committed(pair.bootstrap, "g", topic, p) for p in (0, 1)) >= 50, "all done"
        )
        with store.read() as tx:
            assert sorted(tx.execute(select(effects.c.number)).scalars()) == list(range(50))
    assert not [alarm for alarm in alarms if alarm.name == "dead-letter"]


def test_a_dead_letter_that_cannot_be_kept_is_kept_later(pair: Pair) -> None:
    topic = pair.topic("orders")
    app = new_app(pair)
    tries = threading.Semaphore(0)

    @app.handler(topic, group="g")
    def work(number: int) -> None:
        tries.release()
        raise ValueError("always")

    with app:
        store = app.context.store
        assert store is not None
        assert app.runners[0].ready.wait(30)
        with away(store) as asked:
            send(pair.bootstrap, topic, [b"1"])
            assert asked.wait(30)
            assert tries.acquire(timeout=30)
            assert committed(pair.bootstrap, "g", topic) <= 0
        assert len(read_all(pair.bootstrap, f"{topic}.dlq", 1)) == 1
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 1)


def test_a_handler_that_ends_its_thread_is_only_a_failed_message(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"1", b"2"])
    app = App(pair.bootstrap)
    seen: list[int] = []

    @app.handler(topic, group="g")
    def work(number: int) -> None:
        if number == 1:
            raise SystemExit(3)
        seen.append(number)

    with app:
        wait_until(lambda: seen == [2])
        assert len(read_all(pair.bootstrap, f"{topic}.dlq", 1)) == 1

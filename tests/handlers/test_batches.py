"""Batches: a list in one transaction, gone out by size or by time, taken apart by a poison."""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, Table, insert, select
from tests.handlers.running import committed, read_all, send
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.client.message import Message
from headrace.handlers import App, Backoff, Retry
from headrace.store import Transaction

_metadata = MetaData()
rows = Table("rows", _metadata, Column("number", Integer))


def new_app(pair: Pair) -> App:
    app = App(pair.bootstrap, store=pair.store_url)
    assert app.context.store is not None
    with app.context.store.begin() as tx:
        _metadata.create_all(tx.connection)
    return app


def stored(app: App) -> list[int]:
    assert app.context.store is not None
    with app.context.store.read() as tx:
        return sorted(tx.execute(select(rows.c.number)).scalars())


def test_a_batch_goes_out_when_it_is_full_or_has_lingered(pair: Pair) -> None:
    topic = pair.topic("orders")
    app = new_app(pair)
    sizes: list[int] = []

    @app.handler(topic, group="g", batch=50, linger="300ms")
    def work(numbers: list[int], messages: list[Message], tx: Transaction) -> None:
        assert [int(message.value or b"") for message in messages] == numbers
        sizes.append(len(numbers))
        tx.execute(insert(rows), [{"number": number} for number in numbers])

    send(pair.bootstrap, topic, [b"%d" % n for n in range(120)])
    with app:
        wait_until(lambda: stored(app) == list(range(120)))
        assert max(sizes) == 50
        assert sizes[-1] == 20
    assert committed(pair.bootstrap, "g", topic) == 120


def test_a_poison_message_is_found_and_the_others_take_effect(pair: Pair) -> None:
    topic = pair.topic("orders")
    values = [b"%d" % n for n in range(100)]
    values[13], values[50] = b"junk", b"66666"
    send(pair.bootstrap, topic, values)
    app = new_app(pair)
    calls: list[int] = []

    @app.handler(topic, group="g", batch=100, linger="200ms")
    def work(numbers: list[int], tx: Transaction) -> None:
        calls.append(len(numbers))
        tx.execute(insert(rows), [{"number": number} for number in numbers])
        if 66666 in numbers:
            raise ValueError("poison")

    with app:
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 100)
        assert stored(app) == [n for n in range(100) if n not in (13, 50)]
        letters = read_all(pair.bootstrap, f"{topic}.dlq", 2)
    assert sorted(letter.value() for letter in letters) == [b"66666", b"junk"]
    # Halving finds a poison in about twice the logarithm, not by a call for each message.
    assert len(calls) < 40


def test_a_failed_message_of_a_batch_is_retried_from_the_table(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(30)], key=lambda n: b"%d" % (n % 3))
    app = new_app(pair)
    failures: list[int] = []
    retry = Retry(in_place=1, delay="1ms", then=Backoff("20ms", "50ms", attempts=10))

    @app.handler(topic, group="g", batch=30, linger="100ms", order="key", retry=retry)
    def work(numbers: list[int], tx: Transaction) -> None:
        if 7 in numbers and len(failures) < 12:
            failures.append(7)
            raise ValueError("not yet")
        tx.execute(insert(rows), [{"number": number} for number in numbers])

    with app:
        wait_until(lambda: stored(app) == list(range(30)))


def test_a_repeat_inside_a_batch_is_left_out(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(
        pair.bootstrap,
        topic,
        [b"%d" % (n // 2) for n in range(20)],
        headers=lambda n: [("headrace-id", b"%d" % (n // 2))],
    )
    app = new_app(pair)

    @app.handler(topic, group="g", batch=20, linger="100ms")
    def work(numbers: list[int], tx: Transaction) -> None:
        tx.execute(insert(rows), [{"number": number} for number in numbers])

    with app:
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 20)
        assert stored(app) == list(range(10))


def test_batches_may_be_async_and_without_a_store(pair: Pair) -> None:
    topic = pair.topic("orders", 3)
    send(pair.bootstrap, topic, [b"%d" % n for n in range(90)], key=lambda n: b"%d" % n)
    app = App(pair.bootstrap)
    seen: list[int] = []

    @app.handler(topic, group="g", batch=25, linger="50ms", order="none")
    async def work(numbers: list[int]) -> None:
        assert len(numbers) <= 25
        seen.extend(numbers)

    with app:
        wait_until(lambda: len(seen) == 90)
    assert sorted(seen) == list(range(90))

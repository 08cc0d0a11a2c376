"""Delivery by name: at most once, at least once, exactly once in three ways."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, insert, select
from tests.client.kafkas import LIVELY
from tests.handlers.running import committed, read_all, send
from tests.redis_server import RedisServer
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.client.message import Message
from headrace.handlers import App, Output, Retry
from headrace.handlers.lanes import Track
from headrace.store import Transaction
from headrace.store.redis_inbox import RedisInbox
from headrace.testing import BrokerThread

_metadata = MetaData()
effects = Table("effects", _metadata, Column("number", Integer))


def new_app(pair: Pair) -> App:
    app = App(pair.bootstrap, store=pair.store_url, settings=LIVELY)
    assert app.context.store is not None
    with app.context.store.begin() as tx:
        _metadata.create_all(tx.connection)
    return app


def numbers(app: App) -> list[int]:
    """What has taken effect, in order; the app must be running."""
    assert app.context.store is not None
    with app.context.store.read() as tx:
        return sorted(tx.execute(select(effects.c.number)).scalars())


def test_at_most_once_commits_before_it_runs(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(5)])
    app = App(pair.bootstrap)
    committed_at_start: list[int] = []

    @app.handler(topic, group="g", delivery="at_most_once")
    def work(number: int) -> None:
        if not committed_at_start:
            committed_at_start.append(committed(pair.bootstrap, "g", topic))
        raise ValueError("not tried again")

    with app:
        assert len(read_all(pair.bootstrap, f"{topic}.dlq", 5)) == 5
    assert committed_at_start[0] >= 1


@pytest.mark.parametrize("batch", [0, 30])
def test_a_clean_stop_runs_what_was_committed_before(pair: Pair, batch: int) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(400)])
    app = App(pair.bootstrap)
    seen: list[int] = []
    tick = threading.Event()

    def each(number: int) -> None:
        tick.wait(0.001)
        seen.append(number)

    def many(numbers: list[int]) -> None:
        tick.wait(0.001)
        seen.extend(numbers)

    work = many if batch else each
    app.handler(topic, group="g", delivery="at_most_once", batch=batch)(work)
    with app:
        wait_until(lambda: seen, "it has begun")
    assert seen == list(range(committed(pair.bootstrap, "g", topic)))


def test_at_least_once_repeats_what_was_not_committed(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(10)])
    app = App(pair.bootstrap)
    seen: list[int] = []
    stuck, go_on = threading.Event(), threading.Event()

    @app.handler(topic, group="g", drain="10ms")
    def work(number: int) -> None:
        if number == 5 and not go_on.is_set():
            stuck.set()
            go_on.wait(30)
            return
        seen.append(number)

    app.start()
    assert stuck.wait(30)
    stopping = threading.Thread(target=app.stop)
    stopping.start()
    # The bound is over long before the handler is: its late outcome is not committed.
    wait_until(lambda: app.runners[0].partitions == 0, "the partitions are given back")
    go_on.set()
    stopping.join(30)
    place = committed(pair.bootstrap, "g", topic)
    assert place <= 5
    seen_before = list(seen)
    seen.clear()
    with app:
        wait_until(lambda: seen[-1:] == [9])
    assert seen == list(range(max(place, 0), 10))
    assert seen_before == list(range(len(seen_before)))


def test_a_message_that_fails_while_its_partition_is_taken_away_is_not_committed(
    pair: Pair,
) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"0"])
    app = App(pair.bootstrap)
    begun, go_on = threading.Event(), threading.Event()
    runs: list[int] = []

    @app.handler(topic, group="g")
    def work(number: int) -> None:
        runs.append(number)
        begun.set()
        assert go_on.wait(30)
        if len(runs) == 1:
            raise ValueError("the next owner shall decide on it")

    app.start()
    assert begun.wait(30)
    stopping = threading.Thread(target=app.stop)
    stopping.start()
    wait_until(lambda: not any(track.open for track in tracks(app)), "being taken away")
    go_on.set()
    stopping.join(30)
    assert committed(pair.bootstrap, "g", topic) <= 0
    with app:
        wait_until(lambda: len(runs) == 2, "the next owner runs it")
    assert committed(pair.bootstrap, "g", topic) == 1


def tracks(app: App) -> list[Track]:
    """The assigned partitions of the app's one handler."""
    session = app.runners[0]._session
    assert session is not None
    return list(session.assignment.tracks.values())


def test_a_repeated_id_has_one_effect(pair: Pair) -> None:
    topic = pair.topic("orders", 2)
    ids = [n // 3 for n in range(300)]
    send(
        pair.bootstrap,
        topic,
        [b"%d" % n for n in ids],
        key=lambda n: b"%d" % n,
        headers=lambda n: [("headrace-id", b"order-%d" % ids[n])],
    )
    app = new_app(pair)

    @app.handler(topic, group="g", order="key")
    def work(number: int, tx: Transaction) -> None:
        tx.execute(insert(effects).values(number=number))

    with app:
        wait_until(lambda: committed(pair.bootstrap, "g", topic, 0) > 0)
        wait_until(
            lambda: sum(committed(pair.bootstrap, "g", topic, p) for p in (0, 1)) == 300, "all"
        )
        assert numbers(app) == list(range(100))


def test_exactly_once_without_a_transaction_of_its_own_keeps_the_id_only(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"1"] * 4, headers=lambda _: [("headrace-id", b"same")])
    app = new_app(pair)
    seen: list[int] = []

    @app.handler(topic, group="g", delivery="exactly_once")
    def work(number: int) -> None:
        seen.append(number)

    with app:
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 4)
    assert seen == [1]


def test_the_inbox_may_be_in_redis_without_a_store(
    broker: BrokerThread, redis_server: RedisServer
) -> None:
    ids = [n // 2 for n in range(100)]
    send(
        broker.bootstrap,
        "orders",
        [b"%d" % n for n in ids],
        headers=lambda n: [("headrace-id", b"redis-%d" % ids[n])],
    )
    app = App(broker.bootstrap, inbox=RedisInbox(redis_server.url))
    seen: list[int] = []
    failed: set[int] = set()

    @app.handler("orders", group="g", once="inbox", retry=Retry(in_place=2, delay="1ms"))
    def work(number: int) -> None:
        if number % 10 == 3 and number not in failed:
            failed.add(number)
            raise ValueError("let go of, and taken again")
        seen.append(number)

    with app:
        wait_until(lambda: committed(broker.bootstrap, "g", "orders") == 100)
    assert seen == list(range(50))


def test_offsets_in_the_database_decide_where_to_go_on(pair: Pair) -> None:
    topic = pair.topic("orders", 2)
    send(pair.bootstrap, topic, [b"%d" % n for n in range(200)], key=lambda n: b"%d" % n)
    app = new_app(pair)
    failed: set[int] = set()

    @app.handler(topic, group="g", once="offsets", retry=Retry(in_place=3, delay="1ms"))
    def work(number: int, tx: Transaction) -> None:
        tx.execute(insert(effects).values(number=number))
        if number % 50 == 7 and number not in failed:
            failed.add(number)
            raise ValueError("rolled back, then run again")
        if number == 120:
            raise LookupError("a dead letter, and the rest goes on")

    with app:
        wait_until(lambda: len(numbers(app)) == 199, "effects")
        assert len(failed) == 4
    # Whatever Kafka believes, the database knows better.
    _forget_commits(pair, "g", topic)
    send(pair.bootstrap, topic, [b"%d" % n for n in range(200, 210)], key=lambda n: b"%d" % n)
    with app:
        wait_until(lambda: len(numbers(app)) == 209, "the new ones only")
        expected = [n for n in range(210) if n != 120]
        assert numbers(app) == expected


def _forget_commits(pair: Pair, group: str, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": pair.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, partition, 0) for partition in (0, 1)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_a_kafka_transaction_holds_output_and_offsets_together(pair: Pair) -> None:
    topic, doubled = pair.topic("orders", 2), pair.topic("doubled")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(200)], key=lambda n: b"%d" % n)
    app = App(pair.bootstrap)
    failed: set[int] = set()

    @app.handler(topic, group="g", once="transaction", retry=Retry(in_place=3, delay="1ms"))
    def double(number: int, out: Output, message: Message) -> None:
        out.send(doubled, str(2 * number), key=message.key)
        if number % 50 == 7 and number not in failed:
            failed.add(number)
            raise ValueError("aborted, then run again")
        if number == 120:
            raise LookupError("a dead letter")

    with app:
        records = read_all(pair.bootstrap, doubled, 199)
        wait_until(
            lambda: sum(committed(pair.bootstrap, "g", topic, p) for p in (0, 1)) == 200, "offsets"
        )
    assert len(failed) == 4
    expected = [2 * n for n in range(200) if n != 120]
    assert sorted(int(record.value()) for record in records) == expected
    (letter,) = read_all(pair.bootstrap, f"{topic}.dlq", 1)
    assert letter.value() == b"120"


@pytest.mark.parametrize("once", ["inbox", "offsets", "transaction"])
def test_effects_are_once_through_rebalances(pair: Pair, once: str) -> None:
    topic, out_topic = pair.topic("orders", 4), pair.topic("out")
    total = 1_200
    apps = [new_app(pair) for _ in range(3)]
    tick = threading.Event()

    def work_tx(number: int, tx: Transaction) -> None:
        tx.execute(insert(effects).values(number=number))
        tick.wait(0.001)

    def work_out(number: int, out: Output) -> None:
        out.send(out_topic, str(number))
        tick.wait(0.001)

    for app in apps:
        handler = work_out if once == "transaction" else work_tx
        app.handler(topic, group="g", once=once, name="work", drain="5s")(handler)
    send(pair.bootstrap, topic, [b"%d" % n for n in range(total)], key=lambda n: b"%d" % n)

    def done() -> int:
        return sum(max(0, committed(pair.bootstrap, "g", topic, p)) for p in range(4))

    apps[0].start()
    wait_until(lambda: done() > 0)
    apps[1].start()
    apps[2].start()
    wait_until(lambda: apps[2].runners[0].ready.is_set())
    apps[0].stop()
    wait_until(lambda: done() == total, "all committed")
    if once == "transaction":
        records = read_all(pair.bootstrap, out_topic, total)
        found = sorted(int(record.value()) for record in records)
    else:
        found = numbers(apps[1])
    apps[1].stop()
    apps[2].stop()
    assert found == list(range(total))

"""Retries and dead letters of whole applications, on both pairs of Kafka and database."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from tests.handlers.running import committed, read_all, send
from tests.stores import Pair
from tests.waiting import wait_until

from headrace import App, Backoff, Resend, Retry, Transaction
from headrace.client.message import Message
from headrace.client.producer import Producer
from headrace.handlers.dead_letters import replay
from headrace.store import Store, open_store
from headrace.store.failed_messages import MessageSelection

QUICK = Retry(in_place=1, delay="5ms", then=Backoff("50ms", "200ms", attempts=3))


def new_store(pair: Pair) -> Store:
    """The store, with a table for what handlers do."""
    store = open_store(pair.store_url)
    store.create()
    with store.begin() as tx:
        tx.execute("CREATE TABLE effects (message TEXT)")
    return store


def effects(store: Store) -> list[str]:
    with store.read() as tx:
        return [row.message for row in tx.execute("SELECT message FROM effects")]


def test_failed_keys_keep_their_order_in_two_processes_while_the_others_flow(pair: Pair) -> None:
    topic = pair.topic("orders", partitions=2)
    store = new_store(pair)
    tries: Counter[str] = Counter()
    done: dict[str, list[int]] = defaultdict(list)
    bad_is_open = threading.Event()

    def bill(order: str, tx: Transaction) -> None:
        key, _, number = order.partition(":")
        tries[order] += 1
        if key == "bad" and not bad_is_open.is_set():
            raise ConnectionError("the bank is closed")
        if key == "odd" and tries[order] < 3:
            raise ValueError("not yet")
        tx.execute("INSERT INTO effects VALUES (:message)", {"message": order})
        done[key].append(int(number))

    retry = Retry(in_place=1, delay="5ms", then=QUICK.then, always=(ConnectionError,))
    apps = []
    for _ in range(2):
        app = App(pair.bootstrap, store=open_store(pair.store_url))
        app.handler(topic, group="billing", name="bill", order="key", lanes=8, retry=retry)(bill)
        apps.append(app.start())
    try:
        keys = ["bad", "odd", "good", "fine"]
        orders = [f"{keys[number % 4]}:{number // 4}" for number in range(80)]
        send(pair.bootstrap, topic, orders, key=lambda number: keys[number % 4].encode())
        # A group that is rolled back runs its messages again, so a number may stand there twice.
        wait_until(lambda: len({*done["good"]}) == len({*done["fine"]}) == 20, "the others flow")
        assert done["bad"] == []
        bad_is_open.set()
        wait_until(lambda: len(effects(store)) == 80, "all are done")
    finally:
        for app in apps:
            app.stop()
    assert sorted(effects(store)) == sorted(orders)
    for key in keys:
        numbers = [
            int(order.partition(":")[2]) for order in effects(store) if order.startswith(key)
        ]
        assert numbers == list(range(20)), key
    assert store.retries.count(MessageSelection()) == 0
    store.close()


def test_what_never_works_is_in_the_dlq_topic_and_the_index_and_is_replayed_once(
    any_pair: Pair,
) -> None:
    pair = any_pair
    topic = pair.topic("orders")
    store = new_store(pair)
    app = App(pair.bootstrap, store=open_store(pair.store_url))
    is_repaired = threading.Event()

    @app.handler(topic, group="billing", order="key", retry=QUICK)
    def bill(order: str, tx: Transaction) -> None:
        if order == "poison" and not is_repaired.is_set():
            raise LookupError("no such item")
        tx.execute("INSERT INTO effects VALUES (:message)", {"message": order})

    names = ["tea", "poison", "coffee"]
    with app:
        send(
            pair.bootstrap,
            topic,
            names,
            key=lambda _: b"k",
            headers=lambda number: [("headrace-id", names[number].encode()), ("trace", b"t")],
        )
        wait_until(lambda: len(effects(store)) == 2, "the key goes on behind its dead letter")
        assert effects(store) == ["tea", "coffee"]
        (record,) = read_all(pair.bootstrap, f"{topic}.dlq", 1)
        headers = dict(record.headers())
        assert (record.key(), record.value()) == (b"k", b"poison")
        assert headers["headrace-id"] == b"poison"
        assert headers["headrace-error"] == b"LookupError: no such item"
        assert headers["headrace-attempts"] == b"5"
        assert headers["headrace-source"] == f"{topic}/0/1".encode()
        assert headers["trace"] == b"t"
        (letter,) = store.dead_letters.find(MessageSelection())
        assert headers["headrace-fingerprint"].decode() == letter.failure.fingerprint
        wait_until(lambda: committed(pair.bootstrap, "billing", topic) == 3, "the commit")
        is_repaired.set()
        with Producer(pair.bootstrap) as producer:
            chosen = MessageSelection(fingerprint=letter.failure.fingerprint)
            assert sum(map(len, replay(store, producer, chosen))) == 1
        wait_until(lambda: len(effects(store)) == 3, "the replay")
    assert [row.id for row in store.inbox.find("poison")] == ["poison"]
    assert store.dead_letters.find(MessageSelection()) == []
    store.close()


def test_a_re_sent_message_comes_again_with_its_id(pair: Pair) -> None:
    topic = pair.topic("orders")
    app = App(pair.bootstrap)
    seen: list[tuple[str, int]] = []

    @app.handler(topic, group="billing", order="none", retry=Retry(then=Resend(attempts=2)))
    def bill(_order: bytes, message: Message) -> None:
        seen.append((message.id, message.offset))
        raise ValueError("never")

    with app:
        send(pair.bootstrap, topic, [b"x"])
        (record,) = read_all(pair.bootstrap, f"{topic}.dlq", 1)
    assert seen == [(f"{topic}/0/0", offset) for offset in range(3)]
    assert dict(record.headers())["headrace-attempts"] == b"3"


def test_bad_input_is_a_dead_letter_and_the_consumer_lives(pair: Pair) -> None:
    topic = pair.topic("orders")
    app = App(pair.bootstrap, store=pair.store_url)
    seen: list[int] = []

    @app.handler(topic, group="billing", order="key", id="header:order-id", retry=QUICK)
    def bill(amount: int, tx: Transaction) -> None:
        seen.append(amount)

    def headers(number: int) -> list[tuple[str, bytes]]:
        return [] if number == 1 else [("order-id", b"order-%d" % number)]

    with app:
        send(pair.bootstrap, topic, [b"not a number", b"1", None, b"3"], headers=headers)
        wait_until(lambda: seen == [3], "what is good")
        records = read_all(pair.bootstrap, f"{topic}.dlq", 3)
    errors = {
        dict(record.headers())["headrace-source"].decode().rpartition("/")[2]: dict(
            record.headers()
        )["headrace-error"].decode()
        for record in records
    }
    assert errors.keys() == {"0", "1", "2"}
    assert "UndecodablePayload" in errors["0"]
    assert "MissingId" in errors["1"]
    assert "without a value" in errors["2"]
    assert {dict(record.headers())["headrace-attempts"] for record in records} == {b"1"}

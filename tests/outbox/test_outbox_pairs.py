"""The outbox on real brokers and databases: sent, confirmed, switched off, relayed by a process."""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Consumer, Producer
from tests.cli.tool import TOOL
from tests.stores import Pair
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.client.message import Message
from headrace.client.producer import Producer as ClientProducer
from headrace.client.switches import Switches, SwitchState, turn
from headrace.handlers import App
from headrace.outbox.confirmations import CONFIRM_TOPIC, ConfirmationReader, Confirmer
from headrace.outbox.relay import Relay, RelayLimits
from headrace.store import Store, Transaction, open_store


@contextmanager
def opened(pair: Pair) -> Iterator[Store]:
    store = open_store(pair.store_url)
    store.create()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def running(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_SECONDS)


def read(pair: Pair, topic: str, count: int) -> list[Message]:
    """The first records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": pair.bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, found
            for record in consumer.consume(count - len(found), 1.0):
                assert record.error() is None, record.error()
                found.append(Message.from_record(record))
    finally:
        consumer.close()
    return found


def test_messages_arrive_in_order_and_are_confirmed_by_the_consumers_layer(pair: Pair) -> None:
    topic = pair.topic("orders")
    settings = {"bootstrap.servers": pair.bootstrap}
    with opened(pair) as store, ClientProducer(settings) as producer:
        with store.begin() as tx:
            ids = [
                tx.send(topic, str(number), key="k", confirm_by=["billing"]) for number in range(50)
            ]
        relay, reader = Relay(store, producer), ConfirmationReader(store, settings)
        with running(relay.run, reader.run):
            messages = read(pair, topic, 50)
            assert [message.id for message in messages] == ids
            assert [message.value for message in messages] == [b"%d" % n for n in range(50)]
            Confirmer(producer).confirm("shipping", messages)
            Confirmer(producer).confirm("billing", messages)
            wait_until(lambda: store.outbox.counts()["confirmed"] == 50)


def test_any_client_can_confirm(pair: Pair) -> None:
    topic = pair.topic("orders")
    settings = {"bootstrap.servers": pair.bootstrap}
    with opened(pair) as store, ClientProducer(settings) as producer:
        with store.begin() as tx:
            tx.send(topic, b"1", confirm_by="any")
            tx.send(topic, b"2", confirm_by=["billing", "shipping"])
        limits = RelayLimits(confirm_within_ms=500)
        relay, reader = Relay(store, producer, limits=limits), ConfirmationReader(store, settings)
        stock = Producer(settings)
        with running(relay.run, reader.run):
            first, second = read(pair, topic, 2)
            stock.produce(CONFIRM_TOPIC, key=first.id)
            stock.produce(CONFIRM_TOPIC, key=second.id, value="billing")
            stock.produce(CONFIRM_TOPIC, key=b"\xff", value="nonsense")
            assert stock.flush(WAIT_SECONDS) == 0
            wait_until(lambda: store.outbox.counts()["confirmed"] == 1)
            # One group has not: it comes again, with the same id.
            again = read(pair, topic, 1)[0]
            assert again.id == second.id
            wait_until(lambda: (row := store.outbox.find(second.id)) is not None
                  and row.waiting == ["shipping"])  # fmt: skip
            stock.produce(CONFIRM_TOPIC, key=second.id, value="shipping")
            assert stock.flush(WAIT_SECONDS) == 0
            wait_until(lambda: store.outbox.counts()["confirmed"] == 2)


def test_a_topic_that_is_switched_off_keeps_its_messages_in_the_outbox(pair: Pair) -> None:
    off, on = pair.topic("off"), pair.topic("on")
    settings = {"bootstrap.servers": pair.bootstrap}
    turn(settings, off, SwitchState(is_on=False))
    with (
        opened(pair) as store,
        ClientProducer(settings) as producer,
        Switches(settings) as switches,
    ):
        with store.begin() as tx:
            held, sent = tx.send(off, b"1"), tx.send(on, b"2")
        with running(Relay(store, producer, switches).run):
            assert read(pair, on, 1)[0].id == sent
            row = store.outbox.find(held)
            assert row is not None
            assert row.state == "pending"
            turn(settings, off, SwitchState())
            assert read(pair, off, 1)[0].id == held


def test_handlers_confirm_by_themselves(pair: Pair) -> None:
    orders, receipts = pair.topic("orders"), pair.topic("receipts")
    app = App(pair.bootstrap, store=pair.store_url)

    @app.handler(orders, group="billing", start="earliest")
    def bill(order: bytes, tx: Transaction) -> None:
        tx.send(receipts, order, confirm_by=["shipping"])

    @app.handler(receipts, group="shipping", start="earliest")
    def ship(receipt: bytes) -> None: ...

    with opened(pair) as store, app:
        for number in range(10):
            app.send(orders, str(number))
        wait_until(lambda: store.outbox.counts()["confirmed"] == 10)
        assert sum(store.outbox.counts().values()) == 10


def test_a_relay_takes_confirmations_by_http(pair: Pair) -> None:
    topic = pair.topic("orders")
    with opened(pair) as store:
        with store.begin() as tx:
            id = tx.send(topic, b"1", confirm_by=["billing"])
        with started_relay(pair, "--http", "127.0.0.1:0") as (_, said):
            address = said.rpartition("http://")[2].partition("/")[0]
            wait_until(lambda: store.outbox.counts()["sent"] == 1)
            with closing(http.client.HTTPConnection(address, timeout=WAIT_SECONDS)) as connection:
                connection.request("POST", f"/confirm/{id}?group=billing")
                assert connection.getresponse().read() == b'{"confirmed": 1}'
        assert store.outbox.counts()["confirmed"] == 1


def test_a_relay_that_dies_is_followed_by_another(any_pair: Pair) -> None:
    topic = any_pair.topic("orders")
    with opened(any_pair) as store:
        with started_relay(any_pair) as (relay, _):
            with store.begin() as tx:
                ids = [tx.send(topic, str(number)) for number in range(20)]
            wait_until(lambda: store.outbox.counts()["sent"] == 20)
            relay.kill()
            relay.wait(WAIT_SECONDS)
        with store.begin() as tx:
            # Nobody waits for the lease of the dead in a test.
            tx.execute("UPDATE headrace_leases SET until_ms = 0")
            ids.append(tx.send(topic, b"last"))
        with started_relay(any_pair) as (relay, _):
            wait_until(lambda: store.outbox.counts()["sent"] == 21)
        assert relay.returncode == 0
        assert [message.id for message in read(any_pair, topic, 21)] == ids


@contextmanager
def started_relay(pair: Pair, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`headrace outbox relay` as a process of its own, ready to work, and what it said."""
    command = [*TOOL, "outbox", "relay", "-b", pair.bootstrap, "--store", pair.store_url, *options]
    relay = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert relay.stdout is not None
        said = relay.stdout.readline()
        assert said.startswith("relaying to "), said
        yield relay, said
    finally:
        relay.terminate()
        relay.wait(WAIT_SECONDS)

"""The services by their names: each does its work apart from any application's own processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.large.sending import SIZE, noise, small_large
from tests.waiting import wait_until

from headrace import App, Backoff, Retry, outbox
from headrace.cli.service.verbs import Name
from headrace.errors import HandlerError
from headrace.handlers import services
from headrace.handlers.services import ServiceOptions, make_service
from headrace.outbox.relay import RelayLimits
from headrace.store import open_store
from headrace.testing import BrokerThread, VirtualClock


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


def test_the_command_knows_every_service() -> None:
    assert tuple(Name) == services.NAMES


@pytest.mark.parametrize(("name", "hint"), [("relay", "--store"), ("retry", "--app")])
def test_a_service_says_what_it_lacks(kafka: Kafka, name: str, hint: str) -> None:
    with pytest.raises(HandlerError, match=hint):
        make_service(name, ServiceOptions(settings=kafka.quiet))


def test_relay_goes_by_the_clock_it_is_given(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("orders")
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    clock = VirtualClock(now_ms=1_000_000)
    store = open_store(url, clock=clock)
    store.create()
    with store.begin() as tx:
        tx.send(topic, b"tea", confirm_by="any")
    relay = make_service("relay", ServiceOptions(settings=kafka.quiet, store_url=url, clock=clock))
    relay.start()
    try:
        wait_until(lambda: store.outbox.next_due_ms() is not None)
        assert store.outbox.next_due_ms() == 1_000_000 + RelayLimits().confirm_within_ms
    finally:
        relay.stop()
        store.close()


def test_relay_sends_what_an_outbox_holds(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("orders")
    path = tmp_path / "shop.db"
    store = open_store(f"sqlite:///{path}")
    store.create()
    connection = sqlite3.connect(path)
    with connection:
        outbox.send(connection, topic, "tea")
    connection.close()
    relay = make_service(
        "relay", ServiceOptions(settings=kafka.quiet, store_url=f"sqlite:///{path}")
    )
    relay.start()
    try:
        [record] = kafka.read(topic, 1)
        assert record.value() == b"tea"
        wait_until(lambda: store.outbox.counts().get("sent") == 1)
    finally:
        relay.stop()
        store.close()


@pytest.mark.parametrize("once", ["inbox", "transaction"])
def test_retry_runs_the_handlers_of_an_app_on_what_is_parked(
    kafka: Kafka, tmp_path: Path, once: str
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    app = App(kafka.bootstrap, store=url, settings={"log_level": 0})
    topic = kafka.topic("orders")
    billed: list[str] = []
    open_ = {"bank": False}

    @app.handler(
        topic,
        name="bill",
        group=f"billing-{once}",
        once=once,
        start="earliest",
        retry=Retry(in_place=0, then=Backoff("50ms", "50ms", attempts=1_000)),
    )
    def bill(order: str) -> None:
        if not open_["bank"]:
            raise ConnectionError("the bank does not answer")
        billed.append(order)

    with app:
        app.send(topic, "tea").result(TIMEOUT_SECONDS)
        store = app.context.need_store("a look")
        wait_until(lambda: store.retries.next_due_ms("bill") is not None)
    assert billed == []
    open_["bank"] = True
    retry = make_service("retry", ServiceOptions(settings=kafka.quiet, app=app))
    retry.start()
    try:
        wait_until(lambda: billed == ["tea"])
    finally:
        retry.stop()


def test_retry_gives_a_handler_with_a_transaction_the_whole_of_a_large_message(
    kafka: Kafka, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    app = App(kafka.bootstrap, store=url, settings={"log_level": 0}, large=small_large())
    topic = kafka.topic("films")
    film = noise(3 * SIZE)
    shown: list[bytes] = []
    open_ = {"cinema": False}

    @app.handler(
        topic,
        name="show",
        group="cinema",
        once="transaction",
        start="earliest",
        retry=Retry(in_place=0, then=Backoff("50ms", "50ms", attempts=1_000)),
    )
    def show(body: bytes) -> None:
        if not open_["cinema"]:
            raise ConnectionError("the cinema is closed")
        shown.append(body)

    with app:
        app.send(topic, film).result(TIMEOUT_SECONDS)
        store = app.context.need_store("a test")
        wait_until(lambda: store.retries.next_due_ms("show") is not None)
    open_["cinema"] = True
    retry = make_service("retry", ServiceOptions(settings=kafka.quiet, app=app))
    retry.start()
    try:
        wait_until(lambda: shown)
    finally:
        retry.stop()
    assert shown == [film]

"""Sending later from everything that sends: the app, its transactions, the outbox; virtual time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace import App, Output, Producer, Transaction
from headrace.store.outgoing import outgoing
from headrace.testing import BrokerThread, run


def test_an_app_under_test_has_the_service_on_its_own_clock() -> None:
    app = App("localhost:9092")
    heard: list[str] = []

    @app.handler("reminders", group="mail")
    def remind(text: str) -> None:
        heard.append(text)

    with run(app) as world:
        headers = {"headrace-id": "b"}
        app.send("reminders", "a", after="15m")
        app.send("reminders", "b", headers=headers, after="20m")
        app.send("reminders", "c", at=world.clock.now_ms() + 2 * 86_400_000).result(30)
        world.advance("14m59s")
        assert heard == []
        world.advance("1s")
        assert heard == ["a"]
        app.cancel_delayed("b").result(30)
        world.advance("1h")
        assert heard == ["a"]
        world.advance("2d")
        assert heard == ["a", "c"]


def test_a_message_of_a_transaction_is_delayed_if_that_is_committed() -> None:
    app = App("localhost:9092", store="sqlite:///unused.db")
    heard: list[str] = []

    @app.handler("orders", group="shop", dead_letters=False)
    def order(text: str, tx: Transaction) -> None:
        tx.send("reminders", text, after="15m")
        if text == "bad":
            raise ValueError(text)

    @app.handler("reminders", group="mail")
    def remind(text: str) -> None:
        heard.append(text)

    with run(app) as world:
        for text in ("good", "bad"):
            world.send("orders", text)
        world.advance("15m")
        assert heard == ["good"]


def test_a_transaction_cancels_a_delayed_message_if_it_is_committed() -> None:
    app = App("localhost:9092", store="sqlite:///unused.db")
    heard: list[str] = []

    @app.handler("orders", group="shop")
    def order(text: str, tx: Transaction) -> None:
        tx.send("reminders", text, id=f"reminder-{text}", after="15m")

    @app.handler("payments", group="shop", dead_letters=False)
    def pay(text: str, tx: Transaction) -> None:
        tx.cancel_delayed(f"reminder-{text}")
        if text == "bounced":
            raise ValueError(text)

    @app.handler("reminders", group="mail")
    def remind(text: str) -> None:
        heard.append(text)

    with run(app) as world:
        for text in ("paid", "bounced", "open"):
            world.send("orders", text)
        world.settle()
        for text in ("paid", "bounced"):
            world.send("payments", text)
        world.advance("15m")
        assert sorted(heard) == ["bounced", "open"]


def test_a_message_of_a_kafka_transaction_is_delayed_with_it() -> None:
    app = App("localhost:9092")
    heard: list[str] = []

    @app.handler("orders", group="shop", once="transaction")
    def order(text: str, output: Output) -> None:
        output.send("reminders", text, after="15m")

    @app.handler("reminders", group="mail")
    def remind(text: str) -> None:
        heard.append(text)

    with run(app) as world:
        world.send("orders", "a")
        world.advance("15m")
        assert heard == ["a"]


def test_a_row_of_the_outbox_goes_to_the_service() -> None:
    row = outgoing(1_000, "orders", "x", headers={"a": "b"}, id="i", after="1s")
    assert row.topic == "headrace.delay"
    assert row.headers is not None
    assert '["headrace-target", "orders"], ["headrace-deliver-at", "2000"]' in row.headers
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert '"1893456000000"' in (outgoing(0, "orders", "x", at=at).headers or "")


def test_a_delayed_message_has_no_partition_yet() -> None:
    with BrokerThread() as broker, Producer(broker.bootstrap) as producer:
        with pytest.raises(ValueError, match="chosen when it is delivered"):
            producer.send("orders", b"x", partition=0, after="1s")
        with pytest.raises(ValueError, match="not both"):
            producer.send("orders", b"x", after="1s", at=5)

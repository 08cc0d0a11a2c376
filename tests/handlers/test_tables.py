"""Tables of compacted topics, on Headrace and on Apache Kafka."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from tests.stores import Pair
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.errors import HandlerError
from headrace.handlers.app import App
from headrace.handlers.tables import Table, TableNotReady


@dataclass
class Price:
    amount: int


def send(pair: Pair, topic: str, *records: tuple[str, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": pair.bootstrap, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(WAIT_SECONDS) == 0


def test_a_table_is_whole_before_anybody_sees_it_and_then_follows_its_topic(pair: Pair) -> None:
    topic = pair.topic("prices", partitions=3)
    send(pair, topic, *((f"item-{number}", b"%d" % number) for number in range(1000)))
    send(pair, topic, ("item-1", b"100"), ("item-2", None))
    app = App(pair.bootstrap)
    prices = app.table(topic, value=int)
    with app:
        # The first look waits for the whole topic.
        assert len(prices) == 999
        assert prices.ready
        assert prices["item-1"] == 100
        assert "item-2" not in prices
        send(pair, topic, ("item-3", b"300"), ("item-4", None), ("new", b"1"))
        wait_until(lambda: "new" in prices and "item-4" not in prices and prices["item-3"] == 300)
        assert prices.get("item-4", "gone") == "gone"


def test_values_are_what_they_are_said_to_be_and_what_is_not_is_passed_over(pair: Pair) -> None:
    topic = pair.topic("prices")
    send(pair, topic, ("tea", b'{"amount": 3}'), ("tea", b"nonsense"), ("milk", b'{"amount": 1}'))
    app = App(pair.bootstrap)
    names: list[str] = []
    app.on_alarm(lambda alarm: names.append(alarm.name))
    prices = app.table(topic, key=bytes, value=Price)
    with app:
        assert dict(prices) == {b"tea": Price(3), b"milk": Price(1)}
        assert names == ["table-record-refused"]


def test_a_topic_that_is_not_there_yet_is_an_empty_table(pair: Pair) -> None:
    app = App(pair.bootstrap)
    prices = app.table(f"not-yet-{pair.topic('x')}")
    with app:
        assert dict(prices) == {}


def test_looking_around_is_not_disturbed_by_changes(pair: Pair) -> None:
    topic = pair.topic("prices")
    send(pair, topic, ("a", b"1"), ("b", b"2"))
    app = App(pair.bootstrap)
    prices = app.table(topic)
    with app:
        seen = []
        for key in prices:
            seen.append(key)
            if key == "a":
                send(pair, topic, ("b", None), ("c", b"3"))
                wait_until(lambda: "c" in prices)
        assert seen == ["a", "b"]
        assert sorted(prices.items()) == [("a", b"1"), ("c", b"3")]
        assert list(prices.values()) == [b"1", b"3"]


def test_a_table_is_live_only_while_its_app_runs() -> None:
    with pytest.raises(HandlerError, match="is not live"):
        Table("prices")["tea"]


def test_brokers_that_are_away_are_waited_for_and_then_said_to_be() -> None:
    app = App("127.0.0.1:1", settings={"log_level": 0})
    prices = app.table("prices", ready_s=0.1)
    with app:
        assert not prices.ready
        with pytest.raises(TableNotReady, match="not caught up"):
            prices["tea"]

"""Testing an application against a real broker: pytest examples/test_with_kit.py."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from headrace.testing import BrokerThread


def send_order(producer: Producer, number: int) -> None:
    """The code under test: an order counts only when the broker has it on disk."""
    producer.produce("orders", str(number))
    if producer.flush(30):
        raise RuntimeError(f"order {number} was not confirmed")


def read_orders(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "shop", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [int(message.value()) for message in messages]


def test_an_order_arrives(headrace_broker: BrokerThread) -> None:
    producer = Producer({"bootstrap.servers": headrace_broker.bootstrap})
    send_order(producer, 1)
    assert read_orders(headrace_broker.bootstrap, 1) == [1]


def test_an_order_survives_a_lost_connection(headrace_broker: BrokerThread) -> None:
    producer = Producer(
        {"bootstrap.servers": headrace_broker.bootstrap, "enable.idempotence": True}
    )
    lost = headrace_broker.faults.drop("Produce")
    send_order(producer, 1)
    send_order(producer, 2)
    assert lost.hits == 1
    assert read_orders(headrace_broker.bootstrap, 2) == [1, 2]

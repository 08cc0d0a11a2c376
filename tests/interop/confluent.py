"""How confluent-kafka is driven in its tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from tests.interop.cases import Task

SECONDS_MAX = 60.0


def settings(task: Task) -> dict[str, Any]:
    """A consumer of the case's group that commits nothing by itself."""
    return {
        "bootstrap.servers": task.bootstrap,
        "group.id": task.topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


@contextmanager
def consuming(task: Task, **more: Any) -> Iterator[Consumer]:
    """A consumer that is closed afterwards; `more` settings have _ for the dots."""
    made = Consumer({**settings(task), **{name.replace("_", "."): more[name] for name in more}})
    try:
        yield made
    finally:
        made.close()


def poll(consumer: Consumer) -> Message:
    """The next message, which must come."""
    message = consumer.poll(SECONDS_MAX)
    assert message is not None, "no message came"
    assert message.error() is None, message.error()
    return message


def send(producer: Producer, topic: str, value: str, timestamp: int = 0) -> None:
    """Send to partition 0 and wait until it is there."""
    producer.produce(topic, value.encode(), partition=0, timestamp=timestamp)
    assert producer.flush(SECONDS_MAX) == 0


def text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()

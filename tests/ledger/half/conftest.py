"""A Kafka with a half service that asks soon; once for Headrace, once for Apache Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.client.kafkas import LIVELY
from tests.handlers.running import read_all
from tests.ledger.half.world import command
from tests.waiting import WAIT_SECONDS, wait_until

# Not first in a thread: Python 3.11 cannot parse in two of them at once, as pytest lets it.
import headrace.client.consumer.consumer  # noqa: F401
from headrace.handlers.app import App
from headrace.ledger.half.commands import HALF_TOPIC
from headrace.ledger.half.machine import HalfLimits
from headrace.ledger.half.service import HalfStatus, half_service, half_statuses
from headrace.telemetry.alarms import Alarm, Alarms
from headrace.testing import BrokerThread

QUICK = HalfLimits(first_check_ms=1_000, check_every_ms=500, checks_max=3)

_numbers = itertools.count(1)


@dataclass
class HalfKafka:
    """A Kafka and what the half service on it has rung."""

    bootstrap: str
    settings: dict[str, Any]
    alarms: list[Alarm] = field(default_factory=list)

    def name(self, what: str) -> str:
        """A name that no other test has."""
        return f"{what}-h{next(_numbers)}"

    def topic(self, what: str) -> str:
        """A new topic with one partition."""
        name = self.name(what)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_SECONDS)
        return name

    def app(self, store: str | None = None) -> App:
        settings = {"log_level": 0, "session.timeout.ms": 6_000, **LIVELY}
        return App(self.bootstrap, store, settings=settings)

    def say(self, kind: str, id: str, value: bytes = b"payload", **more: str) -> None:
        """What a plain client does."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        headers: Any = command(kind, id, **more)
        producer.produce(HALF_TOPIC, value, b"key", headers=headers)
        assert producer.flush(WAIT_SECONDS) == 0

    def known(self, id: str) -> HalfStatus | None:
        return next(half_statuses(self.settings, id), None)

    def state(self, id: str) -> str | None:
        known = self.known(id)
        return None if known is None else str(known.state)

    def wait_state(self, id: str, state: str) -> None:
        wait_until(lambda: self.state(id) == state, f"{id} is {state}")

    def wait_rung(self, name: str, id: str) -> None:
        """Wait for an alarm that speaks of this id."""

        def is_rung() -> bool:
            return any(alarm.name == name and id in alarm.text for alarm in list(self.alarms))

        wait_until(is_rung, f"{name} for {id}")

    def dead_letter(self, id: str) -> Any:
        """The record of this id in the dead letters."""
        consumer = Consumer({**self.settings, "group.id": "half-letters"})
        try:
            consumer.assign([TopicPartition("headrace.half.dlq", 0, 0)])
            found: list[Any] = []

            def is_there() -> bool:
                record = consumer.poll(0.1)
                if record is not None and record.error() is None:
                    found.append(record)
                return bool(found) and ("headrace-id", id.encode()) in found[-1].headers()

            wait_until(is_there, f"a dead letter of {id}")
            return found[-1]
        finally:
            consumer.close()

    def values(self, topic: str, count: int) -> list[bytes]:
        """All that readers of committed records see; at least `count` are waited for."""
        return [record.value() for record in read_all(self.bootstrap, topic, count)]


@pytest.fixture(scope="module", params=["headrace", "apache"])
def half_kafka(request: pytest.FixtureRequest) -> Iterator[HalfKafka]:
    with ExitStack() as stack:
        if request.param == "apache":
            bootstrap = request.getfixturevalue("apache_kafka").bootstrap
        else:
            bootstrap = stack.enter_context(BrokerThread()).bootstrap
        kafka = HalfKafka(bootstrap, {"bootstrap.servers": bootstrap, "log_level": 0})
        alarms = Alarms()
        alarms.add(kafka.alarms.append)
        service = half_service({**kafka.settings, **LIVELY}, alarms=alarms, limits=QUICK)
        service.start()
        stack.callback(service.stop)
        assert service.wait_ready(WAIT_SECONDS)
        yield kafka

"""`headrace producer` turns the switches that running producers follow."""

from __future__ import annotations

import json
import time

import pytest
from tests.cli.tool import Headrace
from tests.client.kafkas import Kafka, values
from tests.waiting import wait_until

from headrace.client import Producer, Switches
from headrace.client.errors import TopicSwitchedOff
from headrace.testing import BrokerThread


def test_a_running_producer_is_stopped_started_and_slowed(
    headrace: Headrace, broker: BrokerThread
) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("orders")
    with (
        Switches(kafka.quiet) as switches,
        Producer({**kafka.quiet, "linger.ms": 0}, switches=switches) as producer,
    ):
        producer.send_and_wait(topic, "before")
        assert headrace("producer", "off", topic).stdout == f"{topic} is off\n"
        wait_until(lambda: not switches.state(topic).is_on)
        with pytest.raises(TopicSwitchedOff, match=f"headrace producer on {topic}"):
            producer.send(topic, "refused")
        assert headrace("producer", "on", topic).stdout == f"{topic} is on\n"
        wait_until(lambda: switches.state(topic).is_on)
        producer.send_and_wait(topic, "after")
        done = headrace("producer", "limit", topic, "100")
        assert done.stdout == f"{topic} is on, 100 records/s a process\n"
        wait_until(lambda: switches.state(topic).limit_per_s == 100)
        began_s = time.monotonic()
        for _ in range(130):
            producer.send(topic, "slowed")
        # A second's worth goes at once, the other 30 have to wait for their turns.
        assert time.monotonic() - began_s >= 0.29
        headrace("producer", "limit", topic, "none")
        wait_until(lambda: switches.state(topic).limit_per_s is None)
    assert values(kafka.read(topic, 132))[:2] == ["before", "after"]


def test_the_switches_are_listed_and_kept(headrace: Headrace, broker: BrokerThread) -> None:
    assert json.loads(headrace("producer", "list", "-o", "json").stdout) == []
    headrace("producer", "limit", "a", "0.5")
    headrace("producer", "off", "a", "b")
    broker.restart()
    assert json.loads(headrace("producer", "list", "-o", "json").stdout) == [
        {"topic": "a", "state": "off", "limit": 0.5},
        {"topic": "b", "state": "off", "limit": None},
    ]
    # Switched on again, a limit is still there.
    headrace("producer", "on", "a", "b")
    assert headrace("producer", "list").stdout.splitlines()[1].split() == ["a", "on", "0.5"]


@pytest.mark.parametrize("rate", ["fast", "0", "inf", "nan"])
def test_a_limit_that_is_none_is_refused(headrace: Headrace, rate: str) -> None:
    errors = headrace("producer", "limit", "a", rate, fails=True).stderr
    assert "records a second" in errors

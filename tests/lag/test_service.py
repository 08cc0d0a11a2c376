"""The lag service alarms once, with several instances and through restarts of the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.cli.offsets import commit, fill
from tests.client.kafkas import Kafka
from tests.waiting import wait_until

from headrace.client.compacted import CompactedReader
from headrace.lag.level_topic import TOPIC, LevelTopic, make_topic
from headrace.lag.levels import Level, LevelPolicy, Threshold
from headrace.lag.rules import LagConfig, Rule
from headrace.lag.service import LagService
from headrace.lag.watch_machine import StoredLevel
from headrace.telemetry.alarms import Alarm, Alarms
from headrace.testing import BrokerThread


def config(pattern: str) -> LagConfig:
    """Alarm at once, look often."""
    levels = LevelPolicy(warning=Threshold(records=5), rise_after_ms=0, fall_after_ms=0, clear=1.0)
    return LagConfig(every_ms=100, rules=(Rule(groups=(pattern,), levels=levels),))


class Heard:
    """What the log notifiers of some services have rung."""

    def __init__(self) -> None:
        self.alarms = Alarms()
        self.rung: list[tuple[str, str]] = []
        self.alarms.add(self._hear)

    def _hear(self, alarm: Alarm) -> None:
        self.rung.append((alarm.details["group"], alarm.details["level"]))


@contextmanager
def serving(bootstrap: str, heard: Heard, pattern: str = "*") -> Iterator[LagService]:
    settings = {"bootstrap.servers": bootstrap}
    service = LagService(settings, config=config(pattern), alarms=heard.alarms)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def levels(bootstrap: str) -> dict[str, dict[str, Any]]:
    """The stored levels."""
    found: dict[str, dict[str, Any]] = {}

    def take(key: bytes, value: bytes | None) -> None:
        if value is None:
            found.pop(key.decode(), None)
        else:
            found[key.decode()] = json.loads(value)

    with CompactedReader(bootstrap, TOPIC, take) as reader:
        assert reader.caught_up.wait(30)
    return found


def test_a_group_that_is_behind_is_told_once_and_again_when_it_is_well(kafka: Kafka) -> None:
    topic = kafka.topic("served")
    kafka.fill(topic, 9)
    commit(kafka.bootstrap, "served-1", {(topic, 0): 0})
    heard = Heard()
    with serving(kafka.bootstrap, heard, "served-1") as service:
        wait_until(lambda: heard.rung, "the alarm")
        wait_until(lambda: levels(kafka.bootstrap)["served-1"]["told"], "it is written down")
        assert levels(kafka.bootstrap)["served-1"]["level"] == "warning"
        looks = service.measurements
        wait_until(lambda: service.measurements > looks + 3, "more looks")
        commit(kafka.bootstrap, "served-1", {(topic, 0): 9})
        wait_until(lambda: "served-1" not in levels(kafka.bootstrap), "it has recovered")
    assert heard.rung == [("served-1", "warning")]


@pytest.fixture
def behind(broker: BrokerThread) -> str:
    """A broker with a group that is behind."""
    fill(broker.bootstrap, "orders", [9])
    commit(broker.bootstrap, "shop", {("orders", 0): 0})
    return broker.bootstrap


def test_one_alarms_and_another_takes_over_without_saying_it_again(behind: str) -> None:
    heard = Heard()
    with serving(behind, heard) as first:
        wait_until(lambda: first.is_active, "the first is active")
        with serving(behind, heard) as second:
            wait_until(lambda: heard.rung, "the alarm")
            wait_until(lambda: levels(behind)["shop"]["told"], "it is written down")
            wait_until(lambda: first.is_active != second.is_active, "one of them is active")
            active, standby = (first, second) if first.is_active else (second, first)
            active.stop()
            wait_until(
                lambda: standby.is_active and standby.measurements > 3, "the other takes over"
            )
    assert heard.rung == [("shop", "warning")]


def test_what_a_predecessor_did_not_get_to_say_is_said(behind: str) -> None:
    settings = {"bootstrap.servers": behind}
    make_topic(settings)
    level_topic = LevelTopic(settings)
    level_topic.write({"shop": StoredLevel(level=Level.WARNING, since_ms=1, is_notified=False)})
    level_topic.close()
    heard = Heard()
    with serving(behind, heard):
        wait_until(lambda: levels(behind)["shop"]["told"], "it is written down")
    assert heard.rung == [("shop", "warning")]


def test_one_that_was_taken_over_from_cannot_write_any_more(broker: BrokerThread) -> None:
    settings = {"bootstrap.servers": broker.bootstrap}
    make_topic(settings)
    old = LevelTopic(settings)
    old.write({"shop": StoredLevel(level=Level.WARNING, since_ms=1)})
    new = LevelTopic(settings)
    assert new.known == {"shop": StoredLevel(level=Level.WARNING, since_ms=1)}
    with pytest.raises(Exception, match=r"(?i)fenced|newer"):
        old.write({"shop": StoredLevel(level=Level.CRITICAL, since_ms=2)})
    new.write({"shop": StoredLevel()})
    assert levels(broker.bootstrap) == {}
    old.close()
    new.close()


def test_it_goes_on_after_the_broker_was_away(behind: str, broker: BrokerThread) -> None:
    heard = Heard()
    with serving(behind, heard) as service:
        wait_until(lambda: heard.rung, "the alarm")
        wait_until(lambda: levels(behind)["shop"]["told"], "it is written down")
        broker.restart()
        looks = service.measurements
        wait_until(lambda: service.measurements > looks + 2, "it looks again")
        commit(behind, "shop", {("orders", 0): 9})
        wait_until(lambda: "shop" not in levels(behind), "it has recovered")
    assert heard.rung == [("shop", "warning")]

"""The live switch and limit of a topic, on any Kafka."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.kafkas import Kafka
from tests.waiting import wait_until

from headrace.client import Producer, Switches
from headrace.client.errors import RateLimited, TopicSwitchedOff
from headrace.client.switches import CONTROL_TOPIC, Rate, SwitchState, turn


def test_a_switch_reaches_those_who_follow_and_those_who_come(kafka: Kafka) -> None:
    topic = kafka.topic("switched")
    with Switches(kafka.quiet) as early:
        assert early.is_ready
        assert early.admit(topic) == 0.0
        turn(kafka.quiet, topic, SwitchState(is_on=False))
        wait_until(lambda: not early.state(topic).is_on)
        with Switches(kafka.quiet) as late, pytest.raises(TopicSwitchedOff):
            late.admit(topic)
        turn(kafka.quiet, topic, SwitchState())
        wait_until(lambda: early.state(topic).is_on)


def test_a_producer_refuses_what_its_limit_would_hold_too_long(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("limited")
    turn(headrace_kafka.quiet, topic, SwitchState(limit_per_s=2))
    with (
        Switches(headrace_kafka.quiet) as switches,
        Producer({**headrace_kafka.quiet, "max.block.ms": 100}, switches=switches) as producer,
    ):
        producer.send(topic, "1")
        producer.send(topic, "2")
        with pytest.raises(RateLimited, match="2 records a second"):
            producer.send(topic, "3")


def test_a_caller_that_waits_for_its_turn_notices_the_switch(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("waiting")
    turn(headrace_kafka.quiet, topic, SwitchState(limit_per_s=1))
    with Switches(headrace_kafka.quiet) as switches:
        assert switches.admit(topic) == 0.0
        turn(headrace_kafka.quiet, topic, SwitchState(is_on=False, limit_per_s=1))
        wait_until(lambda: not switches.state(topic).is_on)
        with pytest.raises(TopicSwitchedOff):
            switches.wait(topic, 1, 60.0)


def test_nonsense_in_the_control_topic_is_passed_over(
    headrace_kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = headrace_kafka.topic("sane")
    turn(headrace_kafka.quiet, topic, SwitchState(is_on=False))
    with Producer(headrace_kafka.quiet) as producer:
        for nonsense in ("no json", "[1]", '{"limit_per_s": -1}'):
            producer.send(CONTROL_TOPIC, nonsense, key=topic)
    with Switches(headrace_kafka.quiet) as switches:
        assert not switches.state(topic).is_on
    assert "on_record failed" in caplog.text


def test_a_cluster_that_is_away_holds_nobody_for_long() -> None:
    began_s = time.monotonic()
    with Switches({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, ready_s=0.1) as switches:
        assert not switches.is_ready
        assert switches.state("any").is_on
    assert time.monotonic() - began_s < 8


@given(
    per_second=st.floats(0.1, 1000),
    steps=st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20)), min_size=1, max_size=50),
)
def test_a_rate_is_never_passed(per_second: float, steps: list[tuple[float, int]]) -> None:
    rate = Rate(per_second)
    now_s = 0.0
    turns: list[tuple[float, int]] = []
    for gap_s, records in steps:
        now_s += gap_s
        wait_s = rate.wait_s(records, now_s)
        assert wait_s is not None
        turns.append((now_s + wait_s, records))
    # In no stretch of time more than its share and the second's worth that may be saved up.
    for first in range(len(turns)):
        for last in range(first, len(turns)):
            stretch_s = turns[last][0] - turns[first][0]
            sent = sum(records for _, records in turns[first : last + 1])
            largest = max(records for _, records in turns[first : last + 1])
            assert sent <= (stretch_s + 1) * per_second + largest + 1e-6


@given(st.floats(0.1, 1000), st.integers(1, 100))
def test_a_turn_that_is_refused_costs_nothing(per_second: float, records: int) -> None:
    rate, twin = Rate(per_second), Rate(per_second)
    rate.wait_s(records, 0.0)
    twin.wait_s(records, 0.0)
    assert rate.wait_s(10**9, 0.0, most_s=1.0) is None
    assert rate.wait_s(1, 0.0) == twin.wait_s(1, 0.0)

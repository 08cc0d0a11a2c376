"""A group that a topic with a long history has never seen: it has to say where it starts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.cli.offsets import commit
from tests.client.kafkas import Kafka, read_values, values
from tests.waiting import wait_until

from headrace.client import Consumer
from headrace.client.errors import NoStart, UnknownGroupHistory

HOUR_MS = 3_600_000
SHORT = {"headrace.history.records": 5}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def poll_until_refused(consumer: Consumer) -> UnknownGroupHistory:
    with pytest.raises(UnknownGroupHistory) as caught:
        wait_until(lambda: consumer.poll_batch(10, 0.1))
    return caught.value


def test_an_unknown_group_is_refused_with_the_backlog_and_the_choices(kafka: Kafka) -> None:
    topic = kafka.topic("orders", 2)
    kafka.fill(topic, 4)
    kafka.fill(topic, 3, partition=1)
    with Consumer({**kafka.quiet, **SHORT, "auto.offset.reset": "earliest"}, group="typo") as it:
        it.subscribe(topic)
        refusal = poll_until_refused(it)
        assert (refusal.group, refusal.topic, refusal.records) == ("typo", topic, 7)
        for words in ("'typo'", topic, "7 records", 'start="earliest"', 'start="latest"', "2h"):
            assert words in str(refusal)
        # It stays refused, and nothing is read or committed meanwhile.
        with pytest.raises(UnknownGroupHistory):
            it.poll(0)
    assert kafka.committed("typo", topic) is None


def test_a_day_is_a_long_history_whatever_the_count(kafka: Kafka) -> None:
    topic = kafka.topic("days", config={"retention.ms": "-1"})
    kafka.fill(topic, 1, timestamp_ms=now_ms() - 25 * HOUR_MS)
    with Consumer(kafka.quiet, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert "more than 1 day" in str(poll_until_refused(consumer))


@pytest.mark.parametrize(
    ("start", "read"),
    [("earliest", ["old0", "old1", "new0"]), ("latest", ["later0"]), ("2h", ["new0"])],
)
def test_an_explicit_start_is_taken(kafka: Kafka, start: str, read: list[str]) -> None:
    topic = kafka.topic("begun", config={"retention.ms": "-1"})
    kafka.fill(topic, 2, timestamp_ms=now_ms() - 30 * HOUR_MS, word="old")
    kafka.fill(topic, 1, timestamp_ms=now_ms() - HOUR_MS, word="new")
    with Consumer({**kafka.quiet, **SHORT}, group=f"g-{topic}", start=start) as consumer:
        consumer.subscribe(topic)
        found: list[str] = []

        def has_begun() -> bool:
            found.extend(values(consumer.poll_batch(9, 0.05)))
            return bool(consumer.assignment())

        wait_until(has_begun)
        kafka.fill(topic, 1, word="later")
        while "later0" not in found:
            found += read_values(consumer, 1)
    assert found == [*read, "later0"][: len(found)]
    assert found[-1] == "later0"
    # The group is known now: it goes on where it was, without a start.
    kafka.fill(topic, 1, word="next")
    with Consumer({**kafka.quiet, **SHORT}, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert read_values(consumer, 1) == ["next0"]


def test_a_short_history_needs_no_start(kafka: Kafka) -> None:
    topic = kafka.topic("short")
    kafka.fill(topic, 5)
    settings = {**kafka.quiet, **SHORT, "auto.offset.reset": "earliest"}
    with Consumer(settings, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert len(read_values(consumer, 5)) == 5


def test_the_guard_can_be_taken_away(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("guardless", config={"retention.ms": "-1"})
    headrace_kafka.fill(topic, 3, timestamp_ms=now_ms() - 50 * HOUR_MS)
    settings: dict[str, Any] = {
        **headrace_kafka.quiet,
        "headrace.history.ms": -1,
        "headrace.history.records": -1,
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert len(read_values(consumer, 3)) == 3


def test_none_refuses_a_partition_without_an_offset(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("none")
    settings = {**headrace_kafka.quiet, "auto.offset.reset": "none"}
    with Consumer(settings, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        with pytest.raises(NoStart, match=r"auto\.offset\.reset is none"):
            wait_until(lambda: consumer.poll(0.1))
    with Consumer(settings) as consumer, pytest.raises(NoStart):
        consumer.assign(topic)


def test_by_duration_begins_at_the_first_record_of_that_time(kafka: Kafka) -> None:
    topic = kafka.topic("duration", config={"retention.ms": "-1"})
    kafka.fill(topic, 2, timestamp_ms=now_ms() - 5 * HOUR_MS, word="old")
    kafka.fill(topic, 2, timestamp_ms=now_ms() - HOUR_MS, word="new")
    settings = {**kafka.quiet, "auto.offset.reset": "by_duration:PT2H"}
    with Consumer(settings, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert read_values(consumer, 2) == ["new0", "new1"]


def test_by_duration_also_cures_an_offset_that_is_gone(kafka: Kafka) -> None:
    topic = kafka.topic("gone")
    kafka.fill(topic, 3)
    settings = {**kafka.quiet, "auto.offset.reset": "by_duration:1h"}
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0, 1000)])
        assert read_values(consumer, 3) == ["v0", "v1", "v2"]
    for assignor in ("range", "cooperative-sticky"):
        commit(kafka.bootstrap, f"{assignor}-{topic}", {(topic, 0): 1000})
        named = {**settings, "partition.assignment.strategy": assignor}
        with Consumer(named, group=f"{assignor}-{topic}") as consumer:
            consumer.subscribe(topic)
            assert read_values(consumer, 3) == ["v0", "v1", "v2"]


def test_none_refuses_an_offset_that_is_gone(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("gone")
    with Consumer({**headrace_kafka.quiet, "auto.offset.reset": "none"}) as consumer:
        consumer.assign([(topic, 0, 1000)])
        with pytest.raises(NoStart, match="no longer exists"):
            wait_until(lambda: consumer.poll(0.1))

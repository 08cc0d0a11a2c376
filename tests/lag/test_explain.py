"""Causes are found in real situations: real brokers, real consumers, real handlers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer
from tests.cli.members import Member
from tests.cli.offsets import commit
from tests.cli.open_transactions import begin
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.lag.workers import Worker
from tests.waiting import wait_until

from headrace.client.clock import SystemClock
from headrace.client.wire.cluster import ClusterClient, parse_servers
from headrace.client.wire.security import Security
from headrace.handlers import App, Retry
from headrace.lag.causes import explain
from headrace.lag.causes.findings import Cause, Finding
from headrace.lag.gather import gather
from headrace.lag.group_lag import GroupLag
from headrace.lag.meter import Meter
from headrace.lag.snapshot import Failures

WATCH_MS = 1_500
EACH_SECONDS = 0.02

_numbers = itertools.count(1)

# What depends on the broker's own answers is shown on both; the rest is the same code.
on_headrace = pytest.mark.parametrize("kafka", ["headrace"], indirect=True)


@pytest.fixture
def group() -> str:
    """A group that no other test has."""
    return f"explained-{next(_numbers)}"


def causes(
    kafka: Kafka, group: str, watch_ms: int = WATCH_MS, waiting: dict[str, Failures] | None = None
) -> list[Finding]:
    """Watch a group and explain it."""
    with ClusterClient(parse_servers(kafka.bootstrap), Security()) as cluster:
        snapshot = gather(cluster, group, SystemClock(), watch_ms, waiting)
    assert snapshot is not None
    return explain(snapshot)


def measure(kafka: Kafka, group: str) -> GroupLag | None:
    with ClusterClient(parse_servers(kafka.bootstrap), Security()) as cluster:
        return next(
            iter(Meter(cluster, SystemClock()).measure(lambda row: row.group == group)), None
        )


@contextmanager
def working(kafka: Kafka, group: str, topic: str, count: int, **given: float) -> Iterator[None]:
    """This many workers that share the topic and have begun to read every partition."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(
                Worker(kafka.bootstrap, group, topic, **{"each_s": EACH_SECONDS, **given})  # type: ignore[arg-type]
            )

        def is_settled() -> bool:
            found = measure(kafka, group)
            return (
                found is not None
                and found.state == "Stable"
                and len(found.members or ()) == count
                and bool(found.partitions)
                and all(row.lag is not None for row in found.partitions if row.end)
            )

        wait_until(is_settled, "the workers have shared out the topic")
        yield


def test_nobody_reads(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain", 2)
    kafka.fill(topic, 5)
    commit(kafka.bootstrap, group, {(topic, 0): 1, (topic, 1): 0})
    [finding] = causes(kafka, group, 0)
    assert finding.cause is Cause.NO_CONSUMER
    assert "4 records waiting in 1 partition" in finding.evidence
    assert finding.remedies[1].command == f"headrace group seek {group} --to latest --dry-run"


def test_fewer_consumers_than_partitions(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain", 3)
    for partition in range(3):
        kafka.fill(topic, 2_000, partition=partition)
    # It may take them one after the other, and the last of them only after a long time.
    commit(kafka.bootstrap, group, {(topic, partition): 0 for partition in range(3)})
    with working(kafka, group, topic, 1):
        first, *others = causes(kafka, group)
    assert first.cause is Cause.FEWER_CONSUMERS
    assert f"1 member for 3 partitions of {topic}" in first.evidence
    assert Cause.SLOW_HANDLER in {finding.cause for finding in others}


@on_headrace
def test_more_consumers_than_partitions(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    kafka.fill(topic, 5_000)
    with working(kafka, group, topic, 3):
        first, *_ = causes(kafka, group)
    assert first.cause is Cause.MORE_CONSUMERS
    assert f"3 members for 1 partition of {topic}: 2 without one" in first.evidence
    assert first.remedies[0].command == f"headrace topic alter {topic} --partitions 3"


@on_headrace
def test_a_slow_handler(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain", 2)
    for partition in range(2):
        kafka.fill(topic, 5_000, partition=partition)
    with working(kafka, group, topic, 2):
        first, *_ = causes(kafka, group)
    assert first.cause is Cause.SLOW_HANDLER
    assert "2 members behind" in first.evidence[0]


@on_headrace
def test_a_record_that_nobody_gets_over(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    kafka.fill(topic, 50)
    with working(kafka, group, topic, 1, each_s=0.0, stuck_at=7):
        wait_until(lambda: kafka.committed(group, topic) == 7, "it stands at the record")
        first, *_ = causes(kafka, group, 6_500)
    assert first.cause is Cause.ERRORS
    assert f"{topic}:0 has been at offset 7 for" in first.evidence[0]
    assert first.remedies[0].command == (f"headrace consume {topic} --partition 0 --offset 7 -c 1")


@on_headrace
def test_messages_that_fail(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    kafka.fill(topic, 1_000)
    app = App(kafka.bootstrap)

    @app.handler(
        topic,
        group=group,
        start="earliest",
        name=group,
        retry=Retry(in_place=1, delay="20ms", jitter=0.0),
    )
    def fail(order: str) -> None:
        raise KeyError(order)

    with app:
        wait_until(lambda: (measure(kafka, group) or GroupLag(group="")).lag, "it has begun")
        wait_until(
            lambda: any(
                finding.cause is Cause.ERRORS and "dead letter" in finding.evidence[0]
                for finding in causes(kafka, group, 200)
            ),
            "its dead letters are seen",
        )
        first, *_ = causes(kafka, group, 200)
    assert first.cause is Cause.ERRORS
    assert "the last: KeyError: 'v" in first.evidence[0]
    assert first.remedies[0].command == (f"headrace dlq list --groups --topic {topic} --store URL")


@on_headrace
def test_what_waits_for_a_retry_is_known_to_the_store(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    kafka.fill(topic, 10)
    with working(kafka, group, topic, 1, each_s=0.3):
        waiting = {topic: Failures(topic, 0, 4, "TimeoutError: bank")}
        first, *_ = causes(kafka, group, 0, waiting)
    assert first.cause is Cause.ERRORS
    assert f"4 messages of {topic} waiting for a retry; the last: TimeoutError: bank" in (
        first.evidence
    )


def test_one_key_has_most_of_the_records(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain", 3)
    producer = Producer(kafka.quiet)
    for number in range(3_000):
        key = "anna" if number % 20 else f"other-{number}"
        producer.produce(topic, f"{number}", key)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    with working(kafka, group, topic, 3, each_s=0.005):
        first, *_ = causes(kafka, group)
    assert first.cause is Cause.KEY_SKEW
    assert "records have the key 'anna'" in first.evidence[-1]


@on_headrace
def test_a_burst(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    now_ms = round(time.time() * 1000)
    producer = Producer(kafka.quiet)
    for minute in range(60, 6, -1):
        producer.produce(topic, b"steady", timestamp=now_ms - 60_000 * minute)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    commit(kafka.bootstrap, group, {(topic, 0): 54})
    kafka.fill(topic, 5_000, timestamp_ms=now_ms - 1000)
    with working(kafka, group, topic, 1):
        first, *_ = causes(kafka, group)
    assert first.cause is Cause.BURST
    assert f"{topic} got 16.7 records/s in the last 5 minutes, 0.0 in the hour before" in (
        first.evidence
    )
    assert first.remedies[0].command == f"headrace lag watch {group}"


@on_headrace
def test_a_rebalance_storm(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain", 2)
    kafka.fill(topic, 5_000)
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            with Member(kafka.bootstrap, group, topic) as visitor:
                visitor.wait_for(lambda visitor: bool(visitor.owned) or stop.is_set())

    with working(kafka, group, topic, 1, each_s=0.001):
        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            found: list[Finding] = []

            def is_seen() -> bool:
                found[:] = causes(kafka, group, 3_000)
                return found[0].cause is Cause.REBALANCE_STORM

            wait_until(is_seen, "the storm is seen")
        finally:
            stop.set()
            thread.join()
    assert "the assignor range revokes all partitions at each change" in found[0].evidence
    assert found[0].remedies[0].command == f"headrace group describe {group}"


def test_a_transaction_that_is_left_open(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    kafka.fill(topic, 3)
    producer = begin(kafka.bootstrap, f"explained-{next(_numbers)}", [(topic, 0)])
    commit(kafka.bootstrap, group, {(topic, 0): 3})
    [finding] = causes(kafka, group, 0)
    producer.abort_transaction(TIMEOUT_SECONDS)
    assert finding.cause is Cause.OPEN_TRANSACTION
    assert (
        f"1 record at the end of {topic}:0 held back by an open transaction" in finding.evidence[0]
    )


@on_headrace
def test_a_topic_that_its_members_have_left(kafka: Kafka, group: str) -> None:
    left, read = kafka.topic("explain"), kafka.topic("explain")
    kafka.fill(left, 3)
    commit(kafka.bootstrap, group, {(left, 0): 0})
    with Member(kafka.bootstrap, group, read) as member:
        member.wait_for(lambda member: member.owned == {0})
        first, *_ = causes(kafka, group, 0)
    assert first.cause is Cause.NOT_SUBSCRIBED
    assert first.remedies[0].command == f"headrace group delete {group} --topic {left}"


@on_headrace
def test_a_topic_that_was_made_anew(kafka: Kafka, group: str) -> None:
    topic = kafka.topic("explain")
    commit(kafka.bootstrap, group, {(topic, 0): 9})
    [finding] = causes(kafka, group, 0)
    assert finding.cause is Cause.OUT_OF_RANGE
    assert finding.remedies[0].command == (
        f"headrace group seek {group} --to latest --topic {topic}:0 --dry-run"
    )


@on_headrace
def test_a_group_that_is_not_there(kafka: Kafka, group: str) -> None:
    with ClusterClient(parse_servers(kafka.bootstrap), Security()) as cluster:
        assert gather(cluster, group, SystemClock(), 1_000) is None

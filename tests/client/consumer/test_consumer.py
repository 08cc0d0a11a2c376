"""Reading: in groups and alone, seeking, pausing, committing, rebalancing."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import pytest
from tests.apache_kafka import ApacheKafka
from tests.client.kafkas import LIVELY, Kafka, read_values, values
from tests.waiting import wait_until

from headrace.client import Consumer
from headrace.client.errors import CommitFailed
from headrace.testing import BrokerThread

MANUAL = {"enable.auto.commit": False}
EARLIEST = {"auto.offset.reset": "earliest"}


def join(consumer: Consumer, topics: Any, partitions: int, **listeners: Any) -> None:
    """Subscribe and wait for this many partitions; what is read meanwhile is left out."""
    consumer.subscribe(topics, **listeners)
    wait_until(lambda: consumer.poll_batch(1, 0.05) or len(consumer.assignment()) == partitions)


def test_a_list_of_topics_is_read_and_committed(kafka: Kafka) -> None:
    first, second = kafka.topic("first"), kafka.topic("second")
    kafka.fill(first, 2, word="a")
    kafka.fill(second, 2, word="b")
    group = f"g-{first}"
    with Consumer({**kafka.quiet, **EARLIEST}, group=group) as consumer:
        consumer.subscribe([first, second])
        assert sorted(read_values(consumer, 4)) == ["a0", "a1", "b0", "b1"]
    assert (kafka.committed(group, first), kafka.committed(group, second)) == (2, 2)


@pytest.mark.parametrize("compiled", [False, True])
def test_topics_by_a_regular_expression(kafka: Kafka, compiled: bool) -> None:
    topics = [kafka.topic("regex"), kafka.topic("regex"), kafka.topic("not-regex")]
    numbers = "|".join(topic.removeprefix("regex-") for topic in topics[:2])
    pattern: Any = re.compile(rf"regex-({numbers})") if compiled else f"^regex-({numbers})$"
    with Consumer({**kafka.quiet, **EARLIEST}, group=f"g-{topics[0]}{compiled}") as consumer:
        join(consumer, pattern, 2)
        assert {topic for topic, _ in consumer.assignment()} == set(topics[:2])


def test_internal_topics_are_left_out_of_expressions(kafka: Kafka) -> None:
    topic = kafka.topic("outside")
    group = f"g-{topic}"
    with Consumer({**kafka.quiet, **EARLIEST}, group=group) as consumer:
        consumer.commit_sync({(topic, 0): 0})
        assert kafka.committed(group, topic) == 0
        join(consumer, "^(__consumer_offsets|outside.*)", 1)
        assert consumer.assignment() == [(topic, 0)]
        with pytest.raises(ValueError, match=r"exclude\.internal\.topics=false"):
            consumer.subscribe("__consumer_offsets")
    with Consumer({**kafka.quiet, "exclude.internal.topics": False}, start="earliest") as consumer:
        consumer.assign("__consumer_offsets")
        wait_until(lambda: consumer.poll(0.1))


def test_alone_by_topic_by_partition_and_by_offset(kafka: Kafka) -> None:
    topic = kafka.topic("alone", 2)
    kafka.fill(topic, 3, word="a")
    kafka.fill(topic, 3, partition=1, word="b")
    with Consumer(kafka.quiet, start="earliest") as consumer:
        consumer.assign(topic)
        assert len(read_values(consumer, 6)) == 6
        consumer.assign([(topic, 1)])
        assert read_values(consumer, 3) == ["b0", "b1", "b2"]
        consumer.assign([(topic, 0, 2), (topic, 1, 1)])
        assert sorted(read_values(consumer, 3)) == ["a2", "b1", "b2"]
        assert consumer.position() == {(topic, 0): 3, (topic, 1): 3}
        with pytest.raises(ValueError, match="subscribe needs a group"):
            consumer.subscribe(topic)
        with pytest.raises(ValueError, match="commit_sync needs a group"):
            consumer.commit_sync()


def test_alone_with_a_group_goes_on_where_it_was(kafka: Kafka) -> None:
    topic = kafka.topic("resumed")
    kafka.fill(topic, 4)
    group = f"g-{topic}"
    with Consumer({**kafka.quiet, **MANUAL}, group=group, start="earliest") as consumer:
        consumer.assign(topic)
        assert read_values(consumer, 4)[:2] == ["v0", "v1"]
        consumer.commit_sync({(topic, 0): 2})
    with Consumer({**kafka.quiet, **MANUAL}, group=group) as consumer:
        consumer.assign(topic)
        assert read_values(consumer, 2) == ["v2", "v3"]


def test_seeking_by_offset_word_and_time(kafka: Kafka) -> None:
    topic = kafka.topic("sought")
    for number in range(4):
        kafka.fill(topic, 1, timestamp_ms=1_700_000_000_000 + number * 1000, word=f"v{number}-")
    with Consumer({**kafka.quiet, **MANUAL}, group=f"g-{topic}", start="earliest") as consumer:
        join(consumer, topic, 1)
        for place, read in (
            (2, ["v2-0", "v3-0"]),
            ("earliest", ["v0-0", "v1-0", "v2-0", "v3-0"]),
            ("2023-11-14T22:13:21Z", ["v1-0", "v2-0", "v3-0"]),
        ):
            consumer.seek(topic, 0, place)
            assert read_values(consumer, len(read)) == read
        consumer.seek(topic, 0, "latest")
        kafka.fill(topic, 1, word="new")
        assert read_values(consumer, 1) == ["new0"]


def test_paused_partitions_rest_and_resume(kafka: Kafka) -> None:
    topic = kafka.topic("paused", 2)
    with Consumer({**kafka.quiet, **EARLIEST}, group=f"g-{topic}") as consumer:
        join(consumer, topic, 2)
        consumer.pause([(topic, 0)])
        kafka.fill(topic, 2, partition=0, word="paused")
        kafka.fill(topic, 2, partition=1, word="read")
        assert read_values(consumer, 2) == ["read0", "read1"]
        consumer.resume([(topic, 0)])
        assert read_values(consumer, 2) == ["paused0", "paused1"]


def test_a_partition_that_went_while_it_was_paused_is_read_when_it_comes_again(
    kafka: Kafka,
) -> None:
    topic = kafka.topic("roused", 2)
    settings = {**kafka.quiet, **EARLIEST, **LIVELY, "partition.assignment.strategy": "range"}
    with Consumer(settings, group=f"g-{topic}") as first:
        join(first, topic, 2)
        first.pause([(topic, 0), (topic, 1)])
        with Consumer(settings, group=f"g-{topic}") as second:
            second.subscribe(topic)
            wait_until(
                lambda: (
                    first.poll_batch(1, 0.05)
                    or second.poll_batch(1, 0.05)
                    or (len(first.assignment()) == len(second.assignment()) == 1)
                )
            )
        kafka.fill(topic, 1, partition=0, word="a")
        kafka.fill(topic, 1, partition=1, word="b")
        assert sorted(read_values(first, 2)) == ["a0", "b0"]


def test_auto_commit_commits_what_the_caller_is_done_with(kafka: Kafka) -> None:
    topic = kafka.topic("auto")
    group = f"g-{topic}"
    kafka.fill(topic, 3)
    settings = {**kafka.quiet, **EARLIEST, "auto.commit.interval.ms": 100}
    consumer = Consumer(settings, group=group)
    consumer.subscribe(topic)
    wait_until(lambda: consumer.poll(0.1))
    # It has been given the first record and has not come back: that one is not done.
    assert kafka.committed(group, topic) == 0
    wait_until(lambda: consumer.poll(0.1) is None and kafka.committed(group, topic) == 3)
    consumer.close()


def test_auto_commit_happens_on_the_way_out(kafka: Kafka) -> None:
    topic = kafka.topic("out")
    kafka.fill(topic, 2)
    with Consumer({**kafka.quiet, **EARLIEST}, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        read_values(consumer, 2)
    assert kafka.committed(f"g-{topic}", topic) == 2


def test_commits_waited_for_and_called_back(kafka: Kafka) -> None:
    topic = kafka.topic("commits")
    kafka.fill(topic, 5)
    group = f"g-{topic}"
    answers: list[Any] = []
    with Consumer({**kafka.quiet, **EARLIEST, **MANUAL}, group=group) as consumer:
        consumer.subscribe(topic)
        read_values(consumer, 5)
        consumer.commit_sync()
        assert kafka.committed(group, topic) == 5
        for offset in (1, 2, 3):
            consumer.commit_async(
                {(topic, 0): offset},
                lambda error, places: answers.append((error, places[0].offset)),
            )
        wait_until(lambda: consumer.poll(0.05) or len(answers) == 3)
        assert sorted(answers) == [(None, 1), (None, 2), (None, 3)]
        assert consumer.committed([(topic, 0)]) == {(topic, 0): 3}
    assert kafka.committed(group, topic) == 3


def test_a_commit_that_is_refused_says_so(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("refused")
    answers: list[Any] = []
    with Consumer({**kafka.quiet, **MANUAL}, group="g") as consumer:
        join(consumer, topic, 1)
        broker.faults.fail("OffsetCommit", "ILLEGAL_GENERATION", times=2)
        with pytest.raises(CommitFailed, match="another member owns the partitions"):
            consumer.commit_sync({(topic, 0): 1})
        consumer.commit_async({(topic, 0): 1}, lambda error, _places: answers.append(error))
        wait_until(lambda: consumer.poll(0.05) or answers)
        assert isinstance(answers[0], CommitFailed)
        # What passes is tried again.
        broker.faults.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
        consumer.commit_sync({(topic, 0): 2})
        assert consumer.committed([(topic, 0)]) == {(topic, 0): 2}


def test_an_auto_commit_that_fails_is_made_again(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("again")
    kafka.fill(topic, 2)
    settings = {**kafka.quiet, **EARLIEST, "auto.commit.interval.ms": 50}
    with Consumer(settings, group="g") as consumer:
        consumer.subscribe(topic)
        read_values(consumer, 2)
        failed = broker.faults.fail("OffsetCommit", "NOT_ENOUGH_REPLICAS")
        wait_until(lambda: consumer.poll(0.02) is None and kafka.committed("g", topic) == 2)
        assert failed.hits == 1


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_listeners_hear_of_every_change(kafka: Kafka, assignor: str) -> None:
    topic = kafka.topic("listened", 2)
    settings = {
        **kafka.quiet, **EARLIEST, **MANUAL, **LIVELY, "partition.assignment.strategy": assignor
    }  # fmt: skip
    heard: list[tuple[str, list[int]]] = []

    def note(word: str) -> Any:
        return lambda partitions: heard.append((word, sorted(it.partition for it in partitions)))

    group = f"g-{topic}"
    first, second = Consumer(settings, group=group), Consumer(settings, group=group)
    join(first, topic, 2, on_assign=note("given"), on_revoke=note("taken"))
    assert heard == [("given", [0, 1])]
    second.subscribe(topic)
    wait_until(
        lambda: (
            first.poll_batch(1, 0.05)
            or second.poll_batch(1, 0.05)
            or len(first.assignment()) == len(second.assignment()) == 1
        )
    )
    owned = {*first.assignment(), *second.assignment()}
    assert owned == {(topic, 0), (topic, 1)}
    taken = [partitions for word, partitions in heard if word == "taken"]
    # The cooperative ones give up only what another member gets.
    assert taken[0] == (
        [0, 1] if assignor in ("range", "roundrobin") else [second.assignment()[0][1]]
    )
    second.close()
    wait_until(lambda: first.poll_batch(1, 0.05) or len(first.assignment()) == 2)
    first.close()


def test_a_listener_says_where_to_begin_commits_and_pauses(kafka: Kafka) -> None:
    topic = kafka.topic("told", 3)
    for partition in range(3):
        kafka.fill(topic, 4, partition=partition, word=f"p{partition}-")
    group = f"g-{topic}"
    consumer = Consumer({**kafka.quiet, **EARLIEST, **MANUAL}, group=group)

    def given(partitions: list[Any]) -> list[Any]:
        assert [it.offset for it in partitions] == [0, 0, 0]
        consumer.seek(topic, 0, 3)
        consumer.pause([(topic, 2)])
        partitions[1].offset = 2
        return partitions

    def taken(_partitions: list[Any]) -> None:
        consumer.commit_sync({(topic, 0): 4})

    consumer.subscribe(topic, on_assign=given, on_revoke=taken)
    assert sorted(read_values(consumer, 3)) == ["p0-3", "p1-2", "p1-3"]
    consumer.resume([(topic, 2)])
    assert len(read_values(consumer, 4)) == 4
    consumer.close()
    assert kafka.committed(group, topic) == 4


def test_lost_partitions_go_to_their_own_listener(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("lost")
    lost: list[Any] = []
    settings = {**kafka.quiet, **EARLIEST, "heartbeat.interval.ms": 100}
    with Consumer(settings, group="g") as consumer:
        join(consumer, topic, 1, on_lost=lost.extend)
        broker.faults.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
        wait_until(lambda: consumer.poll(0.05) or lost)
        assert [it.topic for it in lost] == [topic]
        assert consumer.assignment() == []


def test_the_new_group_protocol(apache_kafka: ApacheKafka) -> None:
    kafka = Kafka("apache", apache_kafka.bootstrap)
    topic = kafka.topic("next", 2)
    kafka.fill(topic, 3)
    settings = {**kafka.quiet, **EARLIEST, "group.protocol": "consumer"}
    with Consumer(settings, group=f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert read_values(consumer, 3) == ["v0", "v1", "v2"]
    assert kafka.committed(f"g-{topic}", topic) == 3


def test_nothing_is_lost_or_repeated_when_members_come_and_go(kafka: Kafka) -> None:
    topic = kafka.topic("moving", 4)
    settings = {**kafka.quiet, **EARLIEST, **LIVELY, "auto.commit.interval.ms": 50}
    group = f"g-{topic}"
    read: list[str] = []

    def take(*consumers: Consumer) -> int:
        for consumer in consumers:
            read.extend(values(consumer.poll_batch(7, 0.02)))
        return len(read)

    with Consumer(settings, group=group) as first:
        join(first, topic, 4)
        for partition in range(4):
            kafka.fill(topic, 100, partition=partition, word=f"{partition}-")
        with Consumer(settings, group=group) as second:
            second.subscribe(topic)
            wait_until(lambda: take(first, second) >= 0 and len(second.assignment()) == 2)
            for partition in range(4):
                kafka.fill(topic, 100, partition=partition, word=f"again{partition}-")
            wait_until(lambda: take(first, second) > 400)
        wait_until(lambda: take(first) >= 800)
    assert len(read) == len(set(read)) == 800


def test_a_listener_that_fails_is_raised_and_costs_no_record(kafka: Kafka) -> None:
    topic = kafka.topic("raised", 2)
    settings = {**kafka.quiet, **EARLIEST, **MANUAL, **LIVELY}
    group = f"g-{topic}"
    read: list[str] = []
    failures: list[str] = []

    def refuse(_partitions: list[Any]) -> None:
        raise LookupError("a listener's own")

    first, second = Consumer(settings, group=group), Consumer(settings, group=group)
    join(first, topic, 2, on_revoke=refuse)
    for partition in range(2):
        kafka.fill(topic, 200, partition=partition, word=f"{partition}-")
    second.subscribe(topic)

    def take() -> int:
        try:
            read.extend(values(first.poll_batch(3, 0.02)))
        except LookupError as failure:
            failures.append(str(failure))
        second.poll_batch(1, 0.02)
        return len(second.assignment())

    wait_until(lambda: take() == 1)
    assert failures == ["a listener's own"]
    second.close()
    # What it kept it has read without a gap: the first offset missing is the last one read.
    for partition in range(2):
        numbers = [int(it[2:]) for it in read if it.startswith(f"{partition}-")]
        assert sorted(set(numbers)) == list(range(len(set(numbers))))
    with contextlib.suppress(LookupError):
        first.close()


def test_a_listener_that_fails_on_the_way_out_is_raised_by_close(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("last")

    def refuse(_partitions: list[Any]) -> None:
        raise LookupError("a listener's own")

    consumer = Consumer(headrace_kafka.quiet, group=f"g-{topic}")
    join(consumer, topic, 1, on_revoke=refuse)
    with pytest.raises(LookupError):
        consumer.close()


def test_a_batch_listener_has_to_say_what_it_commits(headrace_kafka: Kafka) -> None:
    topic = headrace_kafka.topic("said")
    headrace_kafka.fill(topic, 3)
    consumer = Consumer({**headrace_kafka.quiet, **EARLIEST, **MANUAL}, group=f"g-{topic}")
    consumer.subscribe(topic, on_assign=lambda _partitions: consumer.commit_sync())
    with pytest.raises(ValueError, match="offsets to commit must be given"):
        wait_until(lambda: consumer.poll_batch(1, 0.1))
    consumer.close()


def test_a_topic_that_does_not_exist_is_waited_for(
    headrace_kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**headrace_kafka.quiet, **EARLIEST, "metadata.max.age.ms": 500}
    with Consumer(settings, group="waiting") as consumer:
        consumer.subscribe("not-there-yet")
        wait_until(lambda: consumer.poll(0.05) or "not-there-yet" in caplog.text)
        headrace_kafka.fill("not-there-yet", 1, partition=-1)
        assert read_values(consumer, 1) == ["v0"]


def test_closing_waits_only_a_moment_for_brokers_that_are_gone(broker: BrokerThread) -> None:
    kafka = Kafka("headrace", broker.bootstrap)
    topic = kafka.topic("left")
    kafka.fill(topic, 1)
    settings = {**kafka.quiet, **EARLIEST, "default.api.timeout.ms": 500}
    consumer = Consumer(settings, group="g")
    consumer.subscribe(topic)
    read_values(consumer, 1)
    broker.stop()
    began_s = time.monotonic()
    consumer.close()
    assert time.monotonic() - began_s < 10


def test_closing_twice_is_closing_once(headrace_kafka: Kafka) -> None:
    consumer = Consumer(headrace_kafka.quiet, group="closing")
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError):
        consumer.poll(0)

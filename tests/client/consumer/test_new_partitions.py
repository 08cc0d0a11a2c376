"""Partitions added while consumers run with `latest`: a stock consumer loses records, ours none."""

from __future__ import annotations

import random
from typing import Any

import pytest
from confluent_kafka import Consumer as StockConsumer
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.offsets import commit
from tests.client.kafkas import Kafka, read_values, values
from tests.waiting import wait_until

from headrace.client import Consumer
from headrace.client.consumer.group_start import GroupMark, StartRule, decide, find_mark

# So that a running member hears of new partitions within a second.
SOON = {"metadata.max.age.ms": 1000, "heartbeat.interval.ms": 200}


def stock(kafka: Kafka, group: str) -> Any:
    return StockConsumer(
        {
            **kafka.quiet,
            "group.id": group,
            "auto.offset.reset": "latest",
            "topic.metadata.refresh.interval.ms": 1000,
            "enable.auto.commit": False,
        }
    )


def ours(kafka: Kafka, group: str, **settings: Any) -> Consumer:
    return Consumer({**kafka.quiet, **SOON, "auto.offset.reset": "latest", **settings}, group=group)


def join(consumer: Consumer, topic: str, partitions: int) -> None:
    consumer.subscribe(topic)
    wait_until(lambda: consumer.poll_batch(1, 0.05) or len(consumer.assignment()) == partitions)


def test_a_stock_consumer_loses_what_was_written_before_it_knew_of_the_partition(
    kafka: Kafka,
) -> None:
    topic = kafka.topic("grows")
    consumer = stock(kafka, f"stock-{topic}")
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 1)
    kafka.grow(topic, 2)
    kafka.fill(topic, 5, partition=1, word="early")
    wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2)
    read: list[str] = []

    def reads_the_new_partition() -> bool:
        kafka.fill(topic, 1, partition=1, word="late")
        read.extend(values([it for it in consumer.consume(100, 0.2) if it.error() is None]))
        return bool(read)

    wait_until(reads_the_new_partition)
    assert set(read) == {"late0"}, "nothing of what was written early"
    consumer.close()


def test_ours_reads_a_new_partition_from_its_beginning(kafka: Kafka) -> None:
    topic = kafka.topic("grows")
    kafka.fill(topic, 3, word="history")
    consumer = ours(kafka, f"ours-{topic}", **{"headrace.history.records": 10})
    join(consumer, topic, 1)
    kafka.grow(topic, 2)
    kafka.fill(topic, 5, partition=1, word="early")
    assert read_values(consumer, 5) == [f"early{number}" for number in range(5)]
    consumer.close()


def test_a_partition_that_comes_while_nobody_runs_loses_nothing_either(kafka: Kafka) -> None:
    topic = kafka.topic("grows")
    kafka.fill(topic, 3, word="history")
    group = f"away-{topic}"
    first = ours(kafka, group)
    join(first, topic, 1)
    first.close()
    # Nothing was read, so a stock consumer would have committed nothing and begin at the end.
    kafka.fill(topic, 2, word="meanwhile")
    kafka.grow(topic, 2)
    kafka.fill(topic, 2, partition=1, word="early")
    second = ours(kafka, group)
    second.subscribe(topic)
    assert sorted(read_values(second, 4)) == ["early0", "early1", "meanwhile0", "meanwhile1"]
    second.close()


def test_two_members_that_start_together_replay_no_history(kafka: Kafka) -> None:
    topic = kafka.topic("shared", 4)
    for partition in range(4):
        kafka.fill(topic, 3, partition=partition, word="history")
    group = f"pair-{topic}"
    first, second = ours(kafka, group), ours(kafka, group)
    first.subscribe(topic)
    second.subscribe(topic)
    read: list[str] = []

    def both_have_two() -> bool:
        for consumer in (first, second):
            read.extend(values(consumer.poll_batch(10, 0.05)))
        return len(first.assignment()) == len(second.assignment()) == 2

    wait_until(both_have_two)
    for partition in range(4):
        kafka.fill(topic, 1, partition=partition, word=f"new{partition}-")

    def all_new() -> bool:
        for consumer in (first, second):
            read.extend(values(consumer.poll_batch(10, 0.05)))
        return len(read) >= 4

    wait_until(all_new)
    assert sorted(read) == ["new0-0", "new1-0", "new2-0", "new3-0"]
    first.close()
    second.close()


def test_a_topic_taken_as_a_whole_brings_its_new_partitions(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.consumer.consumer.WATCH_SECONDS", 0.2)
    topic = kafka.topic("alone")
    kafka.fill(topic, 2, word="history")
    with Consumer({**kafka.quiet, "auto.offset.reset": "latest"}) as consumer:
        consumer.assign(topic)
        kafka.grow(topic, 2)
        kafka.fill(topic, 3, partition=1, word="early")
        assert read_values(consumer, 3) == ["early0", "early1", "early2"]
        assert consumer.assignment() == [(topic, 0), (topic, 1)]


def test_a_group_of_stock_consumers_is_taken_over_without_a_loss(kafka: Kafka) -> None:
    topic = kafka.topic("moved")
    group = f"moved-{topic}"
    kafka.fill(topic, 2)
    commit(kafka.bootstrap, group, {(topic, 0): 2})
    kafka.grow(topic, 2)
    kafka.fill(topic, 2, partition=1, word="early")
    with ours(kafka, group) as consumer:
        consumer.subscribe(topic)
        assert read_values(consumer, 2) == ["early0", "early1"]


MARK = GroupMark(began_ms=1000, partitions=3)


@given(
    partition=st.integers(0, 9),
    committed=st.dictionaries(st.integers(0, 9), st.integers(0, 100)),
    mark=st.one_of(st.none(), st.builds(GroupMark, st.integers(0, 10**13), st.integers(1, 10))),
)
def test_how_a_partition_is_begun(
    partition: int, committed: dict[int, int], mark: GroupMark | None
) -> None:
    way = decide(partition, committed, mark)
    assert (way is StartRule.COMMITTED) == (partition in committed)
    assert (way is StartRule.START) == (not committed)
    if committed and partition not in committed and mark is not None:
        assert (way is StartRule.OLDEST) == (partition >= mark.partitions)


def test_a_mark_is_found_again_among_other_metadata() -> None:
    later = GroupMark(began_ms=2000, partitions=5)
    assert find_mark([None, "", "somebody's own", str(later), str(MARK)]) == MARK
    assert find_mark(["headrace began_ms=x partitions=1", None]) is None


def test_nothing_is_lost_while_a_topic_grows_and_members_come_and_go(kafka: Kafka) -> None:
    topic = kafka.topic("churn")
    kafka.fill(topic, 20, word="history")
    group = f"churn-{topic}"
    read: set[str] = set()
    written: set[str] = set()

    def member() -> Consumer:
        consumer = ours(kafka, group, **{"enable.auto.commit": False})
        consumer.subscribe(topic)
        return consumer

    def work(members: list[Consumer]) -> None:
        for consumer in members:
            read.update(values(consumer.poll_batch(50, 0.02)))
            consumer.commit_async()

    members = [member()]
    wait_until(lambda: members[0].poll_batch(1, 0.05) or members[0].assignment())
    chance = random.Random(7)
    partitions = 1
    for round_ in range(6):
        if round_ in (1, 3):
            partitions *= 2
            kafka.grow(topic, partitions)
        if round_ in (2, 4):
            members.append(member())
        for partition in range(partitions):
            kafka.fill(topic, 10, partition=partition, word=f"{round_}-{partition}-")
            written |= {f"{round_}-{partition}-{number}" for number in range(10)}
        if round_ in (3, 5):
            # It dies with records in its hands that it never commits.
            dead = members.pop(chance.randrange(len(members)))
            dead.poll_batch(50, 0.2)
            dead.close()
        work(members)

    def all_read() -> bool:
        work(members)
        return written <= read

    wait_until(all_read)
    assert not {value for value in read if value.startswith("history")}
    for consumer in members:
        consumer.close()

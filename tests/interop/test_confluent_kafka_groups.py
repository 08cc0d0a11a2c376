"""Members of groups with confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.interop.cases import GROUP_PARTITIONS, Case, Observed, Task, cases_without, observer
from tests.interop.confluent import SECONDS_MAX, consuming, poll, send, settings, text
from tests.interop.group_cases import GROUP_CASES
from tests.interop.stage import Stage

LACKS: dict[str, str] = {}


@pytest.mark.parametrize("case", cases_without(LACKS, GROUP_CASES), ids=str)
def test_confluent_kafka_groups(case: Case, stage: Stage) -> None:
    task = stage.prepare("confluent-kafka", [case])[case.name]
    case.check(observer(globals(), case)(task), task)


class Member:
    """A consumer that keeps what was taken from it."""

    def __init__(self, task: Task, **more: Any):
        self.revoked: list[int] = []
        self.consumer = Consumer({**settings(task), "heartbeat.interval.ms": 200, **more})
        self.consumer.subscribe([task.topic], on_revoke=self._note)

    def _note(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += (row.partition for row in partitions)

    def assigned(self) -> list[int]:
        return [row.partition for row in self.consumer.assignment()]


def cooperative(task: Task) -> Observed:
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    members = [Member(task, **strategy) for _ in range(2)]
    two = _settle(members)
    for member in members:
        member.revoked.clear()
    members.append(Member(task, **strategy))
    three = _settle(members)
    revoked = [member.revoked.copy() for member in members[:2]]
    for member in members:
        member.consumer.close()
    return {"two": two, "three": three, "revoked": revoked}


def static(task: Task) -> Observed:
    first, second = (Member(task, **{"group.instance.id": name}) for name in ("one", "two"))
    before = _settle([first, second])
    first.revoked.clear()
    second.consumer.close()
    second = Member(task, **{"group.instance.id": "two"})
    after = _settle([first, second])
    rebalances = len(first.revoked)
    first.consumer.close()
    second.consumer.close()
    return {"before": before, "after": after, "rebalances": rebalances}


def static_fenced(task: Task) -> Observed:
    instance = {"group_instance_id": "one", "heartbeat_interval_ms": 200}
    with consuming(task, **instance) as first, consuming(task, **instance) as second:
        first.subscribe([task.topic])
        poll(first)
        second.subscribe([task.topic])
        poll(second)
        said = first.poll(SECONDS_MAX)
        assert said is not None, "the older member was not told"
        error = said.error()
        assert error is not None, "the older member got a message"
        return {
            "fenced": error.code() == KafkaError._FATAL and "Static consumer fenced" in str(error)
        }


def regex(task: Task) -> Observed:
    with consuming(task) as consumer:
        consumer.subscribe([f"^{task.topic}.*"])
        return {"values": [text(poll(consumer)) for _ in range(3)]}


def regex_new_topic(task: Task) -> Observed:
    with consuming(task, topic_metadata_refresh_interval_ms=200) as consumer:
        consumer.subscribe([f"^{task.topic}.*"])
        values = [text(poll(consumer)) for _ in range(3)]
        consumer.commit(asynchronous=False)
        send(Producer({"bootstrap.servers": task.bootstrap}), task.out, "later")
        return {"values": [*values, text(poll(consumer))]}


def _settle(members: list[Member]) -> list[list[int]]:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        for member in members:
            member.consumer.poll(0.05)
        assigned = [member.assigned() for member in members]
        if {len(row) * len(members) for row in assigned} == {GROUP_PARTITIONS}:
            return assigned
    raise AssertionError(f"the group did not settle: {assigned}")

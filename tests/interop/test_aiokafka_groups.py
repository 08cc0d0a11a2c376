"""Members of groups with aiokafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from tests.interop.aio import SECONDS_MAX, consuming, producing, settings
from tests.interop.cases import GROUP_PARTITIONS, Case, Observed, Task, cases_without, observer
from tests.interop.group_cases import GROUP_CASES
from tests.interop.stage import Stage

LACKS = {
    "cooperative": "has no assignor for it",
    "static-fenced": "its heartbeats do not carry the instance id",
}


@pytest.mark.parametrize("case", cases_without(LACKS, GROUP_CASES), ids=str)
def test_aiokafka_groups(case: Case, stage: Stage) -> None:
    task = stage.prepare("aiokafka", [case])[case.name]
    observing = asyncio.wait_for(observer(globals(), case)(task), 3 * SECONDS_MAX)
    case.check(asyncio.run(observing), task)


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer with an instance id that counts how often its partitions were taken away."""

    def __init__(self, task: Task, instance: str):
        self.rebalances = 0
        self.consumer = AIOKafkaConsumer(
            **settings(task), group_instance_id=instance, heartbeat_interval_ms=200
        )
        self.consumer.subscribe([task.topic], listener=self)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.rebalances += 1

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Nothing to do: the consumer knows what it has."""


async def static(task: Task) -> Observed:
    first, second = members = [Member(task, name) for name in ("one", "two")]
    await asyncio.gather(*(member.consumer.start() for member in members))
    before = await _settle(members)
    first.rebalances = 0
    await second.consumer.stop()
    second = Member(task, "two")
    await second.consumer.start()
    after = await _settle([first, second])
    rebalances = first.rebalances
    await asyncio.gather(first.consumer.stop(), second.consumer.stop())
    return {"before": before, "after": after, "rebalances": rebalances}


async def regex(task: Task) -> Observed:
    async with consuming(task) as consumer:
        consumer.subscribe(pattern=f"^{task.topic}.*")
        return {"values": await _next(consumer, 3)}


async def regex_new_topic(task: Task) -> Observed:
    async with consuming(task, metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"^{task.topic}.*")
        values = await _next(consumer, 3)
        await consumer.commit()
        async with producing(task) as producer:
            await producer.send_and_wait(task.out, b"later")
        return {"values": values + await _next(consumer, 1)}


async def _next(consumer: Any, count: int) -> list[str]:
    rows = [await asyncio.wait_for(consumer.getone(), SECONDS_MAX) for _ in range(count)]
    return [row.value.decode() for row in rows]


async def _settle(members: list[Member]) -> list[list[int]]:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        await asyncio.gather(*(member.consumer.getmany(timeout_ms=50) for member in members))
        assigned = [
            sorted(row.partition for row in member.consumer.assignment()) for member in members
        ]
        if {len(row) * len(members) for row in assigned} == {GROUP_PARTITIONS}:
            return assigned
    raise AssertionError(f"the group did not settle: {assigned}")

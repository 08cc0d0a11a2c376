"""Transactions with aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced
from tests.interop.aio import SECONDS_MAX, administering, consuming, producing, settled
from tests.interop.cases import Case, Observed, Task, cases_without, observer
from tests.interop.stage import Stage
from tests.interop.transaction_cases import BEFORE_KIP_890, TRANSACTION_CASES

LACKS = BEFORE_KIP_890


@pytest.mark.parametrize("case", cases_without(LACKS, TRANSACTION_CASES), ids=str)
def test_aiokafka_transactions(case: Case, stage: Stage) -> None:
    task = stage.prepare("aiokafka", [case])[case.name]
    observing = asyncio.wait_for(observer(globals(), case)(task), 3 * SECONDS_MAX)
    case.check(asyncio.run(observing), task)


async def commit(task: Task) -> Observed:
    async with producing(task, transactional_id=task.topic) as producer:
        await producer.begin_transaction()
        await _send(producer, task, "a", "b")
        async with producing(task) as plain:
            await plain.send_and_wait(task.topic, b"plain", partition=1)
        while_open = await _values(task, "committed", until="plain", partitions=2)
        uncommitted = await _values(task, "uncommitted", until="b")
        await producer.commit_transaction()
    return {
        "open": while_open,
        "uncommitted": uncommitted,
        "committed": await _values(task, "committed", until="b"),
    }


async def abort(task: Task) -> Observed:
    async with producing(task, transactional_id=task.topic) as producer:
        await producer.begin_transaction()
        await _send(producer, task, "a", "b")
        await producer.abort_transaction()
        await _transaction(producer, task, "last")
    return await _both(task)


async def zombie(task: Task) -> Observed:
    async with producing(task, transactional_id=task.topic) as first:
        await first.begin_transaction()
        await _send(first, task, "zombie")
        async with producing(task, transactional_id=task.topic) as second:
            await _transaction(second, task, "new")
            fenced = False
            try:
                await _send(first, task, "late")
                await first.commit_transaction()
            except ProducerFenced:
                fenced = True
            await _transaction(second, task, "last")
    return {"fenced": fenced, **await _both(task)}


async def consume_process_produce(task: Task) -> Observed:
    async with producing(task, transactional_id=task.topic) as producer:
        async with consuming(task) as consumer:
            await _copy(task, consumer, producer)
            while_open = await _committed(task)
            await producer.abort_transaction()
        after_abort = await _committed_in_the_end(task, None)
        async with consuming(task) as consumer:
            await _copy(task, consumer, producer)
            await producer.commit_transaction()
        after_commit = await _committed_in_the_end(task, 5)
    async with (
        producing(task, transactional_id=task.topic) as producer,
        consuming(task) as consumer,
    ):
        resumed_at = await _copy(task, consumer, producer)
        await producer.commit_transaction()
    return {
        "while_open": while_open,
        "after_abort": after_abort,
        "after_commit": after_commit,
        "resumed_at": resumed_at,
        "at_end": await _committed_in_the_end(task, 10),
        "outputs": await _values(task, "committed", until="0-9", topic=task.out),
    }


async def epoch_kept(task: Task) -> Observed:
    async with producing(task, transactional_id=task.topic) as producer:
        for value in ("one", "two", "three"):
            await _transaction(producer, task, value)
    return {"values": await _values(task, "committed", until="three")}


async def _send(producer: Any, task: Task, *values: str) -> None:
    for value in values:
        await producer.send_and_wait(task.topic, value.encode(), partition=0)


async def _transaction(producer: Any, task: Task, value: str) -> None:
    async with producer.transaction():
        await _send(producer, task, value)


async def _copy(task: Task, consumer: Any, producer: Any) -> int:
    """Copy five inputs in a transaction that is left open; the offset of the first."""
    consumer.subscribe([task.topic])
    await producer.begin_transaction()
    rows = [await consumer.getone() for _ in range(5)]
    for row in rows:
        await producer.send(task.out, row.value, partition=0)
    partition = TopicPartition(task.topic, 0)
    position = await consumer.position(partition)
    await producer.send_offsets_to_transaction({partition: position}, task.topic)
    return int(rows[0].offset)


async def _committed(task: Task) -> int | None:
    """The offset of the group, as one sees it who does not wait for open transactions."""
    async with administering(task) as admin:
        partition = TopicPartition(task.topic, 0)
        rows = await admin.list_consumer_group_offsets(task.topic, partitions=[partition])
        offset = rows[partition].offset
        return offset if offset >= 0 else None


async def _committed_in_the_end(task: Task, wanted: int | None) -> int | None:
    """Markers are written after the answer to the producer."""
    return await settled(lambda: _committed(task), wanted)


async def _both(task: Task) -> Observed:
    return {kind: await _values(task, kind, until="last") for kind in ("committed", "uncommitted")}


async def _values(
    task: Task, isolation: str, *, until: str, partitions: int = 1, topic: str | None = None
) -> list[str]:
    """All values up to this one, as a consumer of this isolation gets them."""
    values: list[str] = []
    async with consuming(task, isolation_level=f"read_{isolation}") as consumer:
        consumer.assign([TopicPartition(topic or task.topic, row) for row in range(partitions)])
        while until not in values:
            row = await asyncio.wait_for(consumer.getone(), SECONDS_MAX)
            values.append(row.value.decode())
    return values

"""aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata
from tests.interop.aio import (
    SECONDS_MAX,
    administering,
    consuming,
    producing,
    settings,
    settled,
)
from tests.interop.cases import (
    GROUP_PARTITIONS,
    Case,
    Observed,
    Task,
    as_text,
    cases_without,
    observer,
)
from tests.interop.stage import Stage

LACKS = {"keyless-on-compacted": "takes error 87 for an unknown one"}
LACKS_SHAPES = {"null key and value": "refuses to send it"}


@pytest.mark.parametrize("case", cases_without(LACKS), ids=str)
def test_aiokafka(case: Case, stage: Stage) -> None:
    task = stage.prepare("aiokafka", [case], LACKS_SHAPES)[case.name]
    observing = asyncio.wait_for(observer(globals(), case)(task), 3 * SECONDS_MAX)
    case.check(asyncio.run(observing), task)


async def codec(task: Task) -> Observed:
    name = task.name.removeprefix("codec-")
    async with producing(task, compression_type=None if name == "none" else name) as producer:
        for record in task.records:
            await producer.send(
                task.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp_ms,
            )
    return {"records": [_as_json(row) async for row in _read(task, len(task.records))]}


async def acks(task: Task) -> Observed:
    for level in (0, 1, "all"):
        async with producing(task, acks=level) as producer:
            await producer.send_and_wait(task.topic, f"acks {level}".encode())
    return {"values": sorted(await _values(task, 3))}


async def idempotent(task: Task) -> Observed:
    async with producing(task, enable_idempotence=True, max_batch_size=300) as producer:
        sent = [await producer.send(task.topic, str(number).encode()) for number in range(100)]
        offsets = [(await future).offset for future in sent]
    assert await _values(task, 100) == [str(number) for number in range(100)]
    return {"offsets": offsets}


async def auto_create(task: Task) -> Observed:
    async with producing(task) as producer:
        await producer.send_and_wait(task.topic, b"made by use")
    return {"values": await _values(task, 1)}


async def log_append_time(task: Task) -> Observed:
    async with producing(task) as producer:
        await producer.send_and_wait(task.topic, b"late", timestamp_ms=task.seeded_at_ms)
    (row,) = [row async for row in _read(task, 1)]
    return {"timestamp": row.timestamp}


async def too_large(task: Task) -> Observed:
    return {"error": await _refusal(task, b"x" * 5000)}


async def seek(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    async with consuming(task) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 7)
        sought = (await consumer.getone()).offset
        await consumer.seek_to_beginning(partition)
        beginning = (await consumer.getone()).offset
        await consumer.seek_to_end(partition)
        end = await consumer.position(partition)
        return {"seek": sought, "beginning": beginning, "end": end}


async def offsets_for_times(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    times = {
        "before": task.seeded_at_ms - 1,
        "exact": task.seeded_at_ms + 5000,
        "between": task.seeded_at_ms + 5001,
        "after": task.seeded_at_ms + 20_000,
    }
    async with consuming(task) as consumer:
        found = {}
        for name, timestamp_ms in times.items():
            row = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
            found[name] = None if row is None else row.offset
        return found


async def commit_resume(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    async with consuming(task) as first:
        first.subscribe([task.topic])
        assert [(await first.getone()).offset for _ in range(5)] == list(range(5))
        await first.commit({partition: OffsetAndMetadata(5, "a note")})
    async with consuming(task) as second:
        second.subscribe([task.topic])
        resumed_at = (await second.getone()).offset
        return {"committed": await second.committed(partition), "resumed_at": resumed_at}


async def group(task: Task) -> Observed:
    members = [
        AIOKafkaConsumer(
            task.topic, **settings(task), heartbeat_interval_ms=200, session_timeout_ms=6000
        )
        for _ in range(3)
    ]
    values: set[str] = set()

    async def settle() -> list[list[int]]:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            polls = (member.getmany(timeout_ms=100) for member in members)
            for polled in await asyncio.gather(*polls):
                for rows in polled.values():
                    values.update(row.value.decode() for row in rows)
            assigned = [[row.partition for row in member.assignment()] for member in members]
            if all(assigned) and sum(map(len, assigned)) == GROUP_PARTITIONS and len(values) == 60:
                return assigned
        raise AssertionError(f"the group did not settle: {assigned}, {len(values)} values")

    try:
        await asyncio.gather(*(member.start() for member in members))
        assignments = await settle()
        await members.pop().stop()
        after_leave = await settle()
    finally:
        await asyncio.gather(*(member.stop() for member in members))
    return {"assignments": assignments, "after_leave": after_leave, "values": sorted(values)}


async def create_delete_topic(task: Task) -> Observed:
    async with administering(task) as admin:

        async def create() -> int:
            made = await admin.create_topics([NewTopic(task.topic, 3, 1)])
            return int(made.topic_errors[0][1])

        async def listed() -> bool:
            return task.topic in await admin.list_topics()

        assert await create() == 0
        observed = {
            "again": await create(),
            "listed": await settled(listed, True),
            "partitions": await _partitions(admin, task.topic),
        }
        await admin.delete_topics([task.topic])
        return {**observed, "listed_after_delete": await settled(listed, False)}


async def configs(task: Task) -> Observed:
    async with administering(task) as admin:

        async def retention() -> str:
            resource = ConfigResource(ConfigResourceType.TOPIC, task.topic)
            (answer,) = await admin.describe_configs([resource])
            (described,) = answer.resources
            return next(str(row[1]) for row in described[4] if row[0] == "retention.ms")

        default = await retention()
        settings = {"retention.ms": "7200000"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, task.topic, settings)])
        return {"default": default, "altered": await settled(retention, "7200000")}


async def create_partitions(task: Task) -> Observed:
    async with administering(task) as admin:
        await admin.create_partitions({task.topic: NewPartitions(3)})
        return {"partitions": await settled(lambda: _partitions(admin, task.topic), 3)}


async def delete_records(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    async with administering(task) as admin, consuming(task) as consumer:
        deleted = await admin.delete_records({partition: RecordsToDelete(before_offset=5)})
        earliest = await consumer.beginning_offsets([partition])
        return {"low_watermark": deleted[partition], "earliest": earliest[partition]}


async def _partitions(admin: Any, topic: str) -> int:
    return len((await admin.describe_topics([topic]))[0]["partitions"])


async def _read(task: Task, count: int) -> AsyncIterator[Any]:
    async with consuming(task) as consumer:
        consumer.assign([TopicPartition(task.topic, 0)])
        for _ in range(count):
            yield await consumer.getone()


async def _values(task: Task, count: int) -> list[str]:
    return [row.value.decode() async for row in _read(task, count)]


async def _refusal(task: Task, value: bytes) -> int:
    async with producing(task) as producer:
        try:
            await producer.send_and_wait(task.topic, value)
        except KafkaError as error:
            return int(error.errno)
    return 0


def _as_json(row: Any) -> dict[str, Any]:
    return {
        "key": as_text(row.key),
        "value": as_text(row.value),
        "headers": [[name, as_text(value)] for name, value in row.headers],
        "timestamp": row.timestamp,
        "offset": row.offset,
    }

"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.interop.cases import (
    GROUP_PARTITIONS,
    Case,
    Observed,
    Task,
    as_text,
    cases_without,
    observer,
    settled,
)
from tests.interop.confluent import SECONDS_MAX, consuming, poll, send, settings, text
from tests.interop.stage import Stage

LACKS: dict[str, str] = {}
LACKS_SHAPES: dict[str, str] = {}


@pytest.mark.parametrize("case", cases_without(LACKS), ids=str)
def test_confluent_kafka(case: Case, stage: Stage) -> None:
    task = stage.prepare("confluent-kafka", [case], LACKS_SHAPES)[case.name]
    case.check(observer(globals(), case)(task), task)


def codec(task: Task) -> Observed:
    producer = Producer(
        {"bootstrap.servers": task.bootstrap, "compression.type": task.name.removeprefix("codec-")}
    )
    for record in task.records:
        producer.produce(
            task.topic,
            record.value,
            record.key,
            partition=0,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    assert producer.flush(SECONDS_MAX) == 0
    return {"records": [_as_json(message) for message in _read(task, len(task.records))]}


def acks(task: Task) -> Observed:
    for level in ("0", "1", "all"):
        producer = Producer({"bootstrap.servers": task.bootstrap, "acks": level})
        send(producer, task.topic, f"acks {level}")
    return {"values": sorted(text(message) for message in _read(task, 3))}


def idempotent(task: Task) -> Observed:
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "linger.ms": 0,
        }
    )
    offsets: list[int | None] = []
    for number in range(100):
        producer.produce(
            task.topic,
            str(number).encode(),
            on_delivery=lambda error, message: offsets.append(message.offset()),
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert [text(message) for message in _read(task, 100)] == [str(n) for n in range(100)]
    return {"offsets": offsets}


def auto_create(task: Task) -> Observed:
    send(Producer({"bootstrap.servers": task.bootstrap}), task.topic, "made by use")
    return {"values": [text(message) for message in _read(task, 1)]}


def log_append_time(task: Task) -> Observed:
    producer = Producer({"bootstrap.servers": task.bootstrap})
    send(producer, task.topic, "late", timestamp=task.seeded_at_ms)
    return {"timestamp": next(_read(task, 1)).timestamp()[1]}


def too_large(task: Task) -> Observed:
    producer = Producer({"bootstrap.servers": task.bootstrap})
    return {"error": _refusal(producer, task.topic, "x" * 5000)}


def keyless_on_compacted(task: Task) -> Observed:
    return {"error": _refusal(Producer({"bootstrap.servers": task.bootstrap}), task.topic, "x")}


def seek(task: Task) -> Observed:
    with consuming(task) as consumer:
        consumer.assign([TopicPartition(task.topic, 0, 15)])
        assert poll(consumer).offset() == 15
        consumer.seek(TopicPartition(task.topic, 0, 7))
        sought = poll(consumer).offset()
        consumer.seek(TopicPartition(task.topic, 0, OFFSET_BEGINNING))
        beginning = poll(consumer).offset()
        _, end = consumer.get_watermark_offsets(TopicPartition(task.topic, 0), SECONDS_MAX)
        return {"seek": sought, "beginning": beginning, "end": end}


def offsets_for_times(task: Task) -> Observed:
    times = {
        "before": task.seeded_at_ms - 1,
        "exact": task.seeded_at_ms + 5000,
        "between": task.seeded_at_ms + 5001,
        "after": task.seeded_at_ms + 20_000,
    }
    with consuming(task) as consumer:
        found = {}
        for name, timestamp_ms in times.items():
            asked = [TopicPartition(task.topic, 0, timestamp_ms)]
            offset = consumer.offsets_for_times(asked, SECONDS_MAX)[0].offset
            found[name] = None if offset == OFFSET_END else offset
        return found


def commit_resume(task: Task) -> Observed:
    with consuming(task) as first:
        first.subscribe([task.topic])
        assert [poll(first).offset() for _ in range(5)] == list(range(5))
        commit = TopicPartition(task.topic, 0, 5, metadata="a note")
        first.commit(offsets=[commit], asynchronous=False)
    with consuming(task) as second:
        committed = second.committed([TopicPartition(task.topic, 0)], SECONDS_MAX)[0]
        second.subscribe([task.topic])
        return {
            "committed": committed.offset,
            "metadata": committed.metadata,
            "resumed_at": poll(second).offset(),
        }


def group(task: Task) -> Observed:
    members = [
        Consumer(
            {
                **settings(task),
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6000,
                "enable.auto.commit": True,
            }
        )
        for _ in range(3)
    ]
    values: set[str] = set()

    def settle() -> list[list[int]]:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            for member in members:
                for message in member.consume(10, timeout=0.1):
                    values.add(text(message))
            assigned = [[row.partition for row in member.assignment()] for member in members]
            if all(assigned) and sum(map(len, assigned)) == GROUP_PARTITIONS and len(values) == 60:
                return assigned
        raise AssertionError(f"the group did not settle: {assigned}, {len(values)} values")

    for member in members:
        member.subscribe([task.topic])
    assignments = settle()
    members.pop().close()
    after_leave = settle()
    for member in members:
        member.close()
    return {"assignments": assignments, "after_leave": after_leave, "values": sorted(values)}


def create_delete_topic(task: Task) -> Observed:
    admin = AdminClient({"bootstrap.servers": task.bootstrap})

    def create() -> int:
        try:
            admin.create_topics([NewTopic(task.topic, 3, 1)])[task.topic].result(SECONDS_MAX)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def listed() -> bool:
        return task.topic in admin.list_topics(timeout=SECONDS_MAX).topics

    assert create() == 0
    observed = {
        "again": create(),
        "listed": settled(listed, True),
        "partitions": _partitions(admin, task.topic),
    }
    admin.delete_topics([task.topic])[task.topic].result(SECONDS_MAX)
    return {**observed, "listed_after_delete": settled(listed, False)}


def configs(task: Task) -> Observed:
    admin = AdminClient({"bootstrap.servers": task.bootstrap})

    def retention() -> str:
        resource = ConfigResource(ResourceType.TOPIC, task.topic)
        described = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
        return str(described["retention.ms"].value)

    default = retention()
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, task.topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(SECONDS_MAX)
    return {"default": default, "altered": settled(retention, "7200000")}


def create_partitions(task: Task) -> Observed:
    admin = AdminClient({"bootstrap.servers": task.bootstrap})
    admin.create_partitions([NewPartitions(task.topic, 3)])[task.topic].result(SECONDS_MAX)
    return {"partitions": settled(lambda: _partitions(admin, task.topic), 3)}


def delete_records(task: Task) -> Observed:
    admin = AdminClient({"bootstrap.servers": task.bootstrap})
    upto = TopicPartition(task.topic, 0, 5)
    deleted = admin.delete_records([upto])[upto].result(SECONDS_MAX)
    asked = TopicPartition(task.topic, 0)
    listed = admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(SECONDS_MAX)
    return {"low_watermark": deleted.low_watermark, "earliest": listed.offset}


def _partitions(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions)


def _read(task: Task, count: int) -> Iterator[Message]:
    with consuming(task) as consumer:
        consumer.assign([TopicPartition(task.topic, 0, OFFSET_BEGINNING)])
        for _ in range(count):
            yield poll(consumer)


def _refusal(producer: Producer, topic: str, value: str) -> int:
    codes: list[int] = []
    producer.produce(topic, value.encode(), on_delivery=lambda error, _: codes.append(error.code()))
    assert producer.flush(SECONDS_MAX) == 0
    return codes[0]


def _as_json(message: Message) -> dict[str, Any]:
    return {
        "key": as_text(message.key()),
        "value": as_text(message.value()),
        "headers": [[name, as_text(value)] for name, value in message.headers() or []],
        "timestamp": message.timestamp()[1],
        "offset": message.offset(),
    }

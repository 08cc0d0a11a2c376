"""kafka-python."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
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
from tests.interop.stage import Stage

SECONDS_MAX = 60.0
EARLIEST = -2
LACKS: dict[str, str] = {}
LACKS_SHAPES = {
    "null key and value": "refuses to send it",
    "null header": "refuses to send it",
}


GROUP_TRIES = 4
GROUP_SECONDS_MAX = 12.0
LEAVE_SECONDS_MAX = 60.0


@pytest.mark.parametrize("case", cases_without(LACKS), ids=str)
def test_kafka_python(case: Case, stage: Stage) -> None:
    task = stage.prepare("kafka-python", [case], LACKS_SHAPES)[case.name]
    case.check(observer(globals(), case)(task), task)


def codec(task: Task) -> Observed:
    name = task.name.removeprefix("codec-")
    with _producer(task, compression_type=None if name == "none" else name) as producer:
        for record in task.records:
            producer.send(
                task.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp_ms,
            )
    return {"records": [_as_json(message) for message in _read(task, len(task.records))]}


def acks(task: Task) -> Observed:
    for level in (0, 1, "all"):
        with _producer(task, acks=level, enable_idempotence=level == "all") as producer:
            producer.send(task.topic, f"acks {level}".encode()).get(SECONDS_MAX)
    return {"values": sorted(_values(task, 3))}


def idempotent(task: Task) -> Observed:
    with _producer(task, enable_idempotence=True, batch_size=200) as producer:
        sent = [producer.send(task.topic, str(number).encode()) for number in range(100)]
        offsets = [future.get(SECONDS_MAX).offset for future in sent]
    assert _values(task, 100) == [str(number) for number in range(100)]
    return {"offsets": offsets}


def auto_create(task: Task) -> Observed:
    with _producer(task) as producer:
        producer.send(task.topic, b"made by use").get(SECONDS_MAX)
    return {"values": _values(task, 1)}


def log_append_time(task: Task) -> Observed:
    with _producer(task) as producer:
        producer.send(task.topic, b"late", timestamp_ms=task.seeded_at_ms).get(SECONDS_MAX)
    return {"timestamp": next(_read(task, 1)).timestamp}


def too_large(task: Task) -> Observed:
    return {"error": _refusal(task, b"x" * 5000)}


def keyless_on_compacted(task: Task) -> Observed:
    return {"error": _refusal(task, b"x")}


def seek(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    with _consumer(task) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 7)
        sought = next(consumer).offset
        consumer.seek_to_beginning(partition)
        beginning = next(consumer).offset
        consumer.seek_to_end(partition)
        end = consumer.position(partition)
        return {"seek": sought, "beginning": beginning, "end": end}


def offsets_for_times(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    times = {
        "before": task.seeded_at_ms - 1,
        "exact": task.seeded_at_ms + 5000,
        "between": task.seeded_at_ms + 5001,
        "after": task.seeded_at_ms + 20_000,
    }
    with _consumer(task) as consumer:
        found = {}
        for name, timestamp_ms in times.items():
            row = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            found[name] = None if row is None else row.offset
        return found


def commit_resume(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    with _consumer(task) as first:
        first.subscribe([task.topic])
        assert [next(first).offset for _ in range(5)] == list(range(5))
        first.commit({partition: OffsetAndMetadata(5, "a note", -1)})
    with _consumer(task) as second:
        committed = second.committed(partition, metadata=True)
        second.subscribe([task.topic])
        return {
            "committed": committed.offset,
            "metadata": committed.metadata,
            "resumed_at": next(second).offset,
        }


def group(task: Task) -> Observed:
    # kafka-python 3.0.12 hangs by itself now and then when three members join at once: on Apache
    # Kafka it did so in 5 groups of 40. So a group that does not settle is followed by another.
    for attempt in range(GROUP_TRIES - 1):
        with contextlib.suppress(UnsettledGroup):
            return _group(task, f"{task.topic}-{attempt}")
    return _group(task, task.topic)


class UnsettledGroup(AssertionError):
    """Some member never got its share."""


def _group(task: Task, group_id: str) -> Observed:
    members = [_Member(task, group_id) for _ in range(3)]

    def settle() -> list[list[int]]:
        deadline = time.monotonic() + GROUP_SECONDS_MAX
        while time.monotonic() < deadline:
            members[0].polled.clear()
            members[0].polled.wait(1.0)
            assigned = [member.assigned for member in members]
            seen = set[str]().union(*(member.values for member in members), *left)
            if all(assigned) and sum(map(len, assigned)) == GROUP_PARTITIONS and len(seen) == 60:
                return assigned
        raise UnsettledGroup(f"the group did not settle: {assigned}, {len(seen)} values")

    left: list[set[str]] = []
    try:
        assignments = settle()
        left.append(members.pop().leave())
        after_leave = settle()
    finally:
        left += [member.leave() for member in members]
    values = sorted(set[str]().union(*left))
    return {"assignments": assignments, "after_leave": after_leave, "values": values}


class _Member(threading.Thread):
    """A member of the group on a thread of its own, since joining blocks the poll."""

    def __init__(self, task: Task, group_id: str) -> None:
        super().__init__(daemon=True)
        self.values: set[str] = set()
        self.assigned: list[int] = []
        self.polled = threading.Event()
        self._leaving = threading.Event()
        self._settings = {
            **_settings(task),
            "group_id": group_id,
            "heartbeat_interval_ms": 200,
        }
        self._topic = task.topic
        self.start()

    def run(self) -> None:
        consumer = KafkaConsumer(self._topic, **self._settings)
        while not self._leaving.is_set():
            for messages in consumer.poll(timeout_ms=100).values():
                self.values = self.values | {message.value.decode() for message in messages}
            self.assigned = [row.partition for row in consumer.assignment()]
            self.polled.set()
        consumer.close()

    def leave(self) -> set[str]:
        """Leave the group and give the values that this member saw."""
        self._leaving.set()
        self.join(LEAVE_SECONDS_MAX)
        return self.values


def create_delete_topic(task: Task) -> Observed:
    with _admin(task) as admin:

        def create() -> int:
            topics = {task.topic: {"num_partitions": 3, "replication_factor": 1}}
            created = admin.create_topics(topics, raise_errors=False)
            return int(created["topics"][0]["error_code"])

        def listed() -> bool:
            return task.topic in admin.list_topics()

        assert create() == 0
        observed = {
            "again": create(),
            "listed": settled(listed, True),
            "partitions": _partitions(admin, task.topic),
        }
        admin.delete_topics([task.topic])
        return {**observed, "listed_after_delete": settled(listed, False)}


def configs(task: Task) -> Observed:
    with _admin(task) as admin:

        def retention() -> str:
            resource = ConfigResource(ConfigResourceType.TOPIC, task.topic)
            described = admin.describe_configs([resource], config_filter="all")
            return str(described["topic"][task.topic]["retention.ms"]["value"])

        default = retention()
        change = ConfigResource(ConfigResourceType.TOPIC, task.topic, {"retention.ms": "7200000"})
        admin.alter_configs([change])
        return {"default": default, "altered": settled(retention, "7200000")}


def create_partitions(task: Task) -> Observed:
    with _admin(task) as admin:
        admin.create_partitions({task.topic: 3})
        return {"partitions": settled(lambda: _partitions(admin, task.topic), 3)}


def delete_records(task: Task) -> Observed:
    partition = TopicPartition(task.topic, 0)
    with _admin(task) as admin:
        deleted = admin.delete_records({partition: 5})
        listed = admin.list_partition_offsets({partition: EARLIEST})
        return {
            "low_watermark": deleted[partition]["low_watermark"],
            "earliest": listed[partition].offset,
        }


def _partitions(admin: Any, topic: str) -> int:
    return len(admin.describe_topics([topic])[0]["partitions"])


def _settings(task: Task) -> dict[str, Any]:
    return {
        "bootstrap_servers": task.bootstrap,
        "group_id": task.topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "consumer_timeout_ms": SECONDS_MAX * 1000,
    }


@contextmanager
def _consumer(task: Task) -> Iterator[Any]:
    consumer = KafkaConsumer(**_settings(task))
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _producer(task: Task, **settings: Any) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=task.bootstrap, **settings)
    try:
        yield producer
        producer.flush(SECONDS_MAX)
    finally:
        producer.close()


@contextmanager
def _admin(task: Task) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=task.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def _read(task: Task, count: int) -> Iterator[Any]:
    with _consumer(task) as consumer:
        consumer.assign([TopicPartition(task.topic, 0)])
        for _ in range(count):
            yield next(consumer)


def _values(task: Task, count: int) -> list[str]:
    return [message.value.decode() for message in _read(task, count)]


def _refusal(task: Task, value: bytes) -> int:
    with _producer(task) as producer:
        try:
            producer.send(task.topic, value).get(SECONDS_MAX)
        except KafkaError as error:
            return int(error.errno)
    return 0


def _as_json(message: Any) -> dict[str, Any]:
    return {
        "key": as_text(message.key),
        "value": as_text(message.value),
        "headers": [[name, as_text(value)] for name, value in message.headers],
        "timestamp": message.timestamp,
        "offset": message.offset,
    }

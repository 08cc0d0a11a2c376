"""Requests whose answers Apache Kafka decides: the odd, the wrong and the edge of each call.

A question is (label, request, version); the same ones go to both brokers in this order, so that
later questions may stand on earlier ones. Topics are named by what they are for.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from headrace.protocol.api import REQUESTS
from headrace.protocol.batch import build_batch
from headrace.protocol.records import Record
from headrace.protocol.schema import Message

Question = tuple[str, Message, int]

NOW_MS = int(time.time() * 1000)
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_NAMED = {request.__name__.removesuffix("Request"): request for request in REQUESTS.values()}


def ask(label: str, api: str, version: int, **fields: Any) -> Question:
    """A question with its fields given as plain values; lists of dicts become lists of messages."""
    return label, _message(_NAMED[api], fields), version


def _message(kind: type[Message], fields: dict[str, Any]) -> Message:
    module = sys.modules[kind.__module__]

    def value(name: str, given: Any) -> Any:
        if isinstance(given, list) and given and isinstance(given[0], dict):
            element = kind.__annotations__[name].removeprefix("list[").partition("]")[0]
            return [_message(getattr(module, element), row) for row in given]
        return given

    return kind(**{name: value(name, given) for name, given in fields.items()})


def topics() -> Iterator[Question]:
    def create(label: str, name: str, **fields: Any) -> Question:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}
        return ask(label, "CreateTopics", 4, topics=[topic])

    def assigned(label: str, name: str, *replicas: list[int], first: int = 0) -> Question:
        rows = [
            {"partition_index": first + index, "broker_ids": brokers}
            for index, brokers in enumerate(replicas)
        ]
        return create(label, name, num_partitions=-1, replication_factor=-1, assignments=rows)

    def grow(label: str, name: str, count: int, **fields: Any) -> Question:
        row = {"name": name, "count": count, "assignments": None, **fields}
        return ask(label, "CreatePartitions", 3, topics=[row], timeout_ms=5000)

    yield create("a new topic", "plain")
    yield create("a topic that is there", "plain")
    for name in ("", ".", "..", "with space", "x" * 250, "é", "a/b"):
        yield create(f"the name {name[:10]!r}", name)
    for count in (0, -2):
        yield create(f"{count} partitions", "odd", num_partitions=count)
    for count in (0, -2, 2):
        yield create(f"{count} replicas", "odd", replication_factor=count)
    yield create("defaults", "defaults", num_partitions=-1, replication_factor=-1)
    yield assigned("replicas by hand", "by-hand", [1], [1])
    yield assigned("an unknown broker", "odd", [9])
    yield assigned("a broker twice", "odd", [1, 1])
    yield assigned("a gap in the partitions", "odd", [1], first=1)
    yield assigned("no replica", "odd", [])
    for name, value in (
        ("no.such.setting", "1"),
        ("retention.ms", "abc"),
        ("retention.ms", "-5"),
        ("retention.ms", None),
        ("cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1"),
        ("segment.ms", "0"),
        ("message.timestamp.type", "x"),
        ("preallocate", "maybe"),
    ):
        configs = [{"name": name, "value": value}]
        yield create(f"the setting {name}={value}", "odd", configs=configs)
    twice = [{"name": "twice", "num_partitions": 1, "replication_factor": 1}] * 2
    yield ask("a topic twice in a request", "CreateTopics", 4, topics=twice)
    yield create("a name with a dot", "a.dot")
    yield create("its twin with an underscore", "a_dot")
    yield grow("more partitions", "plain", 3)
    yield grow("as many partitions", "plain", 3)
    yield grow("fewer partitions", "plain", 1)
    yield grow("no partitions", "plain", 0)
    yield grow("partitions of an unknown topic", "absent", 3)
    yield grow("an assignment too few", "plain", 6, assignments=[{"broker_ids": [1]}])
    yield grow("an assignment to nobody", "plain", 4, assignments=[{"broker_ids": [7]}])
    yield grow("an assignment", "plain", 4, assignments=[{"broker_ids": [1]}])
    for version in range(14):
        yield ask(f"metadata v{version}", "Metadata", version, topics=[{"name": "plain"}])
    for name in ("with space", "", "absent"):
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        yield ask(f"metadata of {name!r}", "Metadata", 12, **fields)
    unknown = {"topic_id": bytes([5] * 16), "name": None}
    yield ask("metadata by an unknown id", "Metadata", 12, topics=[unknown])
    yield ask("metadata of no topic", "Metadata", 12, topics=[])
    for label, row in (
        ("an unknown topic", {"name": "absent"}),
        ("an unknown id", unknown),
        ("a name and an id", {**unknown, "name": "plain"}),
        ("neither name nor id", {"name": None}),
        ("a topic", {"name": "by-hand"}),
        ("a topic that is gone", {"name": "by-hand"}),
    ):
        yield ask(f"delete {label}", "DeleteTopics", 6, topics=[row], timeout_ms=5000)


def settings() -> Iterator[Question]:
    def describe(label: str, kind: int, name: str, *keys: str) -> Question:
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}
        return ask(f"describe {label}", "DescribeConfigs", 4, resources=[row])

    def alter(label: str, *changes: tuple[str, int, str | None], name: str = "plain") -> Question:
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        row = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        return ask(f"alter {label}", "IncrementalAlterConfigs", 1, resources=[row])

    def replace(label: str, name: str, **values: str) -> Question:
        configs = [{"name": key.replace("_", "."), "value": v} for key, v in values.items()]
        row = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        return ask(f"replace {label}", "AlterConfigs", 2, resources=[row])

    yield describe("an unknown topic", TOPIC, "absent", "retention.ms")
    yield describe("a bad name", TOPIC, "with space", "retention.ms")
    yield describe("a known and an unknown key", TOPIC, "plain", "segment.bytes", "nope")
    yield describe("an unknown broker", BROKER, "9", "log.retention.ms")
    yield describe("a broker by a word", BROKER, "x", "log.retention.ms")
    yield describe("an unknown kind", 77, "x", "y")
    yield replace("a setting", "plain", segment_bytes="5000000")
    yield replace("it by another", "plain", retention_ms="5000000")
    yield describe("what is left", TOPIC, "plain", "segment.bytes", "cleanup.policy")
    yield replace("of an unknown topic", "absent", retention_ms="5000000")
    yield replace("an unknown setting", "plain", nope="1")
    yield replace("by a bad value", "plain", retention_ms="x")
    yield alter("set", ("max.message.bytes", SET, "2000"))
    yield alter("delete", ("max.message.bytes", DELETE, None))
    yield alter("delete what is not set", ("max.message.bytes", DELETE, None))
    yield alter("append", ("cleanup.policy", APPEND, "compact"))
    yield describe("after append", TOPIC, "plain", "cleanup.policy")
    yield alter("append it again", ("cleanup.policy", APPEND, "compact"))
    yield alter("subtract", ("cleanup.policy", SUBTRACT, "compact"))
    yield describe("after subtract", TOPIC, "plain", "cleanup.policy")
    yield alter("append to what is no list", ("retention.ms", APPEND, "5"))
    yield alter("set to nothing", ("retention.ms", SET, None))
    yield alter("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield alter("an unknown topic", ("retention.ms", SET, "1"), name="absent")
    yield alter("an unknown setting", ("nope", SET, "1"))
    yield alter("by a bad value", ("retention.ms", SET, "-9"))


def records() -> Iterator[Question]:
    def produce(label: str, data: bytes, name: str = "log", version: int = 12) -> Question:
        partition = {"index": 0, "records": data}
        topic = {"name": name, "partition_data": [partition]}
        fields = {"acks": -1, "timeout_ms": 5000, "topic_data": [topic]}
        return ask(f"produce {label}", "Produce", version, **fields)

    def create(name: str, **values: str) -> Question:
        configs = [{"name": key.replace("_", "."), "value": v} for key, v in values.items()]
        row = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        return ask(f"create {name}", "CreateTopics", 4, topics=[row])

    def sequence(label: str, first: int, epoch: int = 0, count: int = 3) -> Question:
        data = batch(count, producer_id=4000, producer_epoch=epoch, base_sequence=first)
        return produce(label, data, "sequences")

    yield create("log")
    for version in range(3, 13):
        yield produce(f"v{version}", batch(), version=version)
    yield produce("to an unknown topic", batch(), "absent")
    yield produce("a wrong checksum", patched(batch(), 70, b"\xff", crc=False))
    for magic in (0, 1, 3, 255):
        yield produce(f"magic {magic}", patched(batch(), 16, bytes([magic]), crc=False))
    yield produce("two batches", batch() + batch())
    yield produce("nothing", b"")
    for end in (5, 14, 20, 40, 61, 70, -1):
        yield produce(f"a batch cut at {end}", batch()[:end])
    for length in (-5, 0, 10, 48, len(batch()) - 11):
        yield produce(f"a length of {length}", patched(batch(), 8, struct.pack(">i", length)))
    for count in (-1, 0, 2, 4):
        yield produce(f"{count} for 3 records", patched(batch(), 57, struct.pack(">i", count)))
    for delta in (-1, 5):
        yield produce(f"a last delta of {delta}", patched(batch(), 23, struct.pack(">i", delta)))
    yield produce("a base offset", patched(batch(), 0, struct.pack(">q", 77), crc=False))
    yield produce("a leader epoch", patched(batch(), 12, struct.pack(">i", 9), crc=False))
    for attributes in (0x20, 0x40, 0x80, 0x100, 0x120):
        data = patched(batch(), 21, struct.pack(">h", attributes))
        yield produce(f"attributes {attributes:#x}", data)
    yield produce("gzip", batch(codec=1))
    yield produce("zstd", batch(codec=4), version=7)
    yield produce("from the far future", batch(first_ms=NOW_MS + 7200_000))
    yield create("compacted", cleanup_policy="compact")
    keyless = [Record(0, NOW_MS, b"k", b"v", ()), Record(1, NOW_MS, None, b"v", ())]
    yield produce("a keyless record", bytes(build_batch(keyless)), "compacted")
    yield produce("a keyless record in gzip", bytes(build_batch(keyless, codec=1)), "compacted")
    yield create("small", max_message_bytes="100")
    yield produce("what is too large", batch(10), "small")
    yield produce("what fits", batch(1), "small")
    yield create("sequences")
    for first in (0, 0, 3, 0, 6, 9, 12, 15, 18, 0, 6, 30):
        yield sequence(f"sequence {first}", first)
    yield sequence("an overlap", 19, count=2)
    yield sequence("a new epoch in the middle", 5, epoch=1)
    yield sequence("a new epoch", 0, epoch=1)
    yield sequence("the old epoch", 21)
    yield from _reads("log")
    yield from _deletes("sequences")


def _reads(name: str) -> Iterator[Question]:
    def offsets(
        label: str, timestamp_ms: int, version: int = 10, topic: str = name, **fields: Any
    ) -> Question:
        row = {"partition_index": 0, "timestamp": timestamp_ms, **fields}
        topics = [{"name": topic, "partitions": [row]}]
        return ask(f"list offsets {label}", "ListOffsets", version, replica_id=-1, topics=topics)

    for version in range(1, 12):
        yield offsets(f"of the end v{version}", -1, version)
        yield offsets(f"of a time v{version}", NOW_MS - 9999, version)
    for special in (-2, -3, -4, -5, -7, -100, 0, NOW_MS + 10**9):
        yield offsets(f"of {special if special <= 0 else 'a future time'}", special)
    yield offsets("of an unknown topic", -1, topic="absent")
    yield offsets("of an unknown partition", -1, partition_index=9)
    yield offsets("with an epoch to come", -1, current_leader_epoch=5)
    for current, asked in ((-1, 0), (-1, 5), (0, 0), (4, 0)):
        row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
        topics = [{"topic": name, "partitions": [row]}]
        label = f"the end of epoch {asked} at {current}"
        yield ask(label, "OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)


def _deletes(name: str) -> Iterator[Question]:
    for label, topic, partition, offset in (
        ("two", name, 0, 2),
        ("fewer", name, 0, 1),
        ("beyond the end", name, 0, 10**6),
        ("before the beginning", name, 0, -2),
        ("of an unknown topic", "absent", 0, 1),
        ("of an unknown partition", name, 9, 1),
        ("all", name, 0, -1),
    ):
        row = {"partition_index": partition, "offset": offset}
        topics = [{"name": topic, "partitions": [row]}]
        yield ask(f"delete records {label}", "DeleteRecords", 2, topics=topics, timeout_ms=5000)


def groups() -> Iterator[Question]:
    member = {"group_id": "group", "member_id": "nobody", "generation_id": 1}
    join: dict[str, Any] = {
        "group_id": "group",
        "member_id": "",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 3000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\0"}],
    }

    def commit(label: str, version: int = 8, **fields: Any) -> Question:
        offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "note"}
        row = {**offset, **fields.pop("row", {})}
        topics = [{"name": fields.pop("topic", "log"), "partitions": [row]}]
        request: dict[str, Any] = {"group_id": "alone", "member_id": "", "topics": topics}
        request = {**request, "generation_id_or_member_epoch": -1, **fields}
        return ask(f"commit {label}", "OffsetCommit", version, **request)

    # Only a look for the coordinator makes Apache Kafka set one up.
    yield ask("find the coordinator", "FindCoordinator", 3, key="group", key_type=0)
    yield ask("join an unnamed group", "JoinGroup", 5, **{**join, "group_id": ""})
    for wait_ms in (100, 99_999_999):
        fields = {**join, "session_timeout_ms": wait_ms}
        yield ask(f"join for {wait_ms} ms", "JoinGroup", 5, **fields)
    yield ask("join without protocols", "JoinGroup", 5, **{**join, "protocols": []})
    yield ask("join without a type", "JoinGroup", 5, **{**join, "protocol_type": ""})
    yield ask("join as a stranger", "JoinGroup", 5, **{**join, "member_id": "nobody"})
    yield ask("join without an id", "JoinGroup", 5, **join)
    yield ask("a stranger's heartbeat", "Heartbeat", 4, **member)
    yield ask("an unnamed heartbeat", "Heartbeat", 4, **{**member, "group_id": ""})
    yield ask("a stranger's sync", "SyncGroup", 4, **member)
    yield ask("a stranger leaves", "LeaveGroup", 2, group_id="group", member_id="nobody")
    gone = [{"member_id": "nobody", "group_instance_id": None}]
    yield ask("a stranger leaves v5", "LeaveGroup", 5, group_id="group", members=gone)
    for version in range(2, 10):
        yield commit(f"alone v{version}", version)
    yield commit(
        "with a generation", generation_id_or_member_epoch=3, member_id="x", group_id="new"
    )
    yield commit("an unknown topic", topic="absent")
    yield commit("an unknown partition", row={"partition_index": 77})
    yield commit("no metadata", row={"committed_metadata": None})
    yield commit("long metadata", row={"committed_metadata": "x" * 5000})
    yield commit("an epoch", row={"committed_offset": 9, "committed_leader_epoch": 4})
    asked = [{"name": "log", "partition_indexes": [0, 1, 77]}]
    for version in range(1, 8):
        fields = {"group_id": "alone", "topics": asked}
        yield ask(f"fetch offsets v{version}", "OffsetFetch", version, **fields)
    for version in range(2, 8):
        fields = {"group_id": "alone", "topics": None}
        yield ask(f"fetch all offsets v{version}", "OffsetFetch", version, **fields)
    for version in (8, 9):
        rows = [{"group_id": "alone", "topics": asked}, {"group_id": "new", "topics": None}]
        yield ask(f"fetch offsets v{version}", "OffsetFetch", version, groups=rows)
    names = {"groups_names": ["alone", "absent"]}
    yield ask("describe groups", "DescribeGroups", 5, groups=["alone", "absent"])
    yield ask("delete groups", "DeleteGroups", 2, **names)
    yield ask("delete groups again", "DeleteGroups", 2, **names)


def replicas() -> Iterator[Question]:
    def elect(label: str, version: int, kind: int = 0, *rows: dict[str, Any]) -> Question:
        fields = {"election_type": kind, "topic_partitions": list(rows), "timeout_ms": 5000}
        return ask(f"elect {label}", "ElectLeaders", version, **fields)

    def move(label: str, name: str, brokers: list[int] | None, index: int = 0) -> Question:
        row = {"partition_index": index, "replicas": brokers}
        topics = [{"name": name, "partitions": [row]}]
        return ask(f"move {label}", "AlterPartitionReassignments", 1, topics=topics)

    rows = [{"topic": "log", "partitions": [0, 9]}, {"topic": "absent", "partitions": [0]}]
    for version in range(3):
        yield elect(f"leaders v{version}", version, 0, *rows)
    yield elect("uncleanly", 2, 1, *rows)
    yield elect("in an unknown way", 2, 5, *rows)
    yield elect("nobody", 2)
    for label, brokers in (
        ("to where it is", [1]),
        ("to an unknown broker", [9]),
        ("to one more broker", [1, 9]),
        ("to a broker twice", [1, 1]),
        ("to nobody", []),
        ("no more", None),
    ):
        yield move(label, "log", brokers)
    yield move("an unknown topic", "absent", [1])
    yield move("an unknown partition", "log", [1], 9)
    asked = [{"name": "log", "partition_indexes": [0, 9]}, {"name": "absent"}]
    yield ask("list moves", "ListPartitionReassignments", 0, topics=asked)
    yield ask("list all moves", "ListPartitionReassignments", 0, topics=None)


ALL = (topics, settings, records, groups, replicas)


def batch(count: int = 3, first_ms: int = NOW_MS - 10_000, **fields: Any) -> bytes:
    rows = [
        Record(number, first_ms + number, b"k%d" % number, b"v%d" % number, ())
        for number in range(count)
    ]
    return bytes(build_batch(rows, **fields))


def patched(data: bytes, position: int, change: bytes, *, crc: bool = True) -> bytes:
    """The batch with some bytes changed, and its checksum made right again unless told not to."""
    changed = bytearray(data)
    changed[position : position + len(change)] = change
    if crc:
        changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)

"""The behaviours that every client must find: what is prepared, what it does, what it must see.

A client does a case and says what it observed (plain JSON values); the check is the same for all
clients, so the tests of two clients differ only in how each client is driven.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from tests.interop.wire import Batch, read_batches

Observed = Mapping[str, Any]
T = TypeVar("T")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP_PARTITIONS = 6
SEEDED_STEP_MS = 1000
_SETTLE_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a producer sends and a consumer must get back."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "key": as_text(self.key),
            "value": as_text(self.value),
            "headers": [[name, as_text(value)] for name, value in self.headers],
            "timestamp": self.timestamp_ms,
        }


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic made before the client starts, with `seeded` numbered records per partition.

    Record i of partition p has the value "p-i" and the timestamp `seeded_at_ms + i * 1000`.
    With `out` there is a second, empty topic for what is made of the first: `Task.out`.
    """

    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    seeded: int = 0
    out: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One case as a client gets it; `topic` is also the name to use for a group."""

    name: str
    bootstrap: str
    topic: str
    seeded_at_ms: int
    records: tuple[Record, ...]

    @property
    def out(self) -> str:
        return f"{self.topic}-out"


_SHAPES: dict[str, tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = {
    "plain": (b"key", b"value", ()),
    "null key": (None, b"without a key", ()),
    "empty key": (b"", b"with an empty key", ()),
    "null value": (b"tombstone", None, ()),
    "empty value": (b"empty value", b"", ()),
    "null key and value": (None, None, ()),
    "binary": (bytes(range(256)), bytes(reversed(range(256))), ()),
    "headers": (b"headers", b"value", (("one", b"1"), ("two", b"\x00\xff"))),
    "repeated header": (b"headers", b"value", (("same", b"1"), ("same", b"2"), ("other", b"3"))),
    "header beyond ASCII": (b"headers", b"value", (("ключ", "значение".encode()),)),
    "empty header": (b"headers", b"value", (("empty", b""),)),
    "null header": (b"headers", b"value", (("null", None),)),
    "large": (b"large", b"a compressible line\n" * 5000, ()),
}

Check = Callable[[Observed, Task], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A behaviour: `topic` is made first (None: the client makes it), then `check` must hold."""

    name: str
    check: Check
    topic: Topic | None = field(default_factory=Topic)

    def __str__(self) -> str:
        return self.name


def as_text(data: bytes | None) -> str | None:
    """Bytes as JSON carries them between the programs and the tests."""
    return None if data is None else b64encode(data).decode("ascii")


def records_to_send(first_timestamp_ms: int, lacks: Collection[str] = ()) -> tuple[Record, ...]:
    """Every shape of key, value and header that a client has, one of them worth compressing."""
    return tuple(
        Record(key, value, headers, first_timestamp_ms + number)
        for number, (shape, (key, value, headers)) in enumerate(_SHAPES.items())
        if shape not in lacks
    )


def observer(namespace: Mapping[str, Any], case: Case) -> Any:
    """The function of a client's module that does a case: `seek` for "seek" and so on."""
    return namespace["codec" if case.name.startswith("codec-") else case.name.replace("-", "_")]


def equals(expected: Observed) -> Check:
    """The check that exactly this was observed."""

    def check(observed: Observed, task: Task) -> None:
        assert observed == expected

    return check


def _records_come_back(codec: int) -> Check:
    def check(observed: Observed, task: Task) -> None:
        assert observed["records"] == [
            {**record.to_json(), "offset": offset} for offset, record in enumerate(task.records)
        ]
        # Some clients leave a batch alone that compression would make larger.
        codecs = {batch.codec for batch in _batches(task)}
        assert codec in codecs
        assert codecs <= {0, codec}

    return check


def _idempotent(observed: Observed, task: Task) -> None:
    assert observed == {"offsets": list(range(100))}
    batches = _batches(task)
    assert len({batch.producer_id for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    sequences = [
        batch.base_sequence + number for batch in batches for number in range(batch.records)
    ]
    assert sequences == list(range(100))


def _broker_time(observed: Observed, task: Task) -> None:
    # The client sent the time of seeding, an hour ago.
    assert abs(observed["timestamp"] - task.seeded_at_ms - 3600_000) < 600_000


def _group(observed: Observed, task: Task) -> None:
    each_assigned_once(observed["assignments"], members=3)
    each_assigned_once(observed["after_leave"], members=2)
    expected = {f"{partition}-{i}" for partition in range(GROUP_PARTITIONS) for i in range(10)}
    assert set(observed["values"]) == expected


def each_assigned_once(assignments: list[list[int]], *, members: int) -> None:
    """Every partition has one owner, and every member owns something."""
    assert len(assignments) == members
    assert all(assignments), f"a member without a partition: {assignments}"
    assert sorted(chain(*assignments)) == list(range(GROUP_PARTITIONS))


def _commit_resumes(observed: Observed, task: Task) -> None:
    assert observed["committed"] == 5
    assert observed["resumed_at"] == 5
    # Not every client lets its user give metadata with a commit.
    assert observed.get("metadata", "a note") == "a note"


def _batches(task: Task) -> list[Batch]:
    return read_batches(task.bootstrap, task.topic)


CASES: tuple[Case, ...] = (
    *(Case(f"codec-{name}", _records_come_back(code)) for code, name in enumerate(CODECS)),
    Case("acks", equals({"values": ["acks 0", "acks 1", "acks all"]})),
    Case("idempotent", _idempotent),
    Case("auto-create", equals({"values": ["made by use"]}), topic=None),
    Case(
        "log-append-time",
        _broker_time,
        Topic(settings={"message.timestamp.type": "LogAppendTime"}),
    ),
    Case("too-large", equals({"error": 10}), Topic(settings={"max.message.bytes": "1000"})),
    Case(
        "keyless-on-compacted",
        equals({"error": 87}),
        Topic(settings={"cleanup.policy": "compact"}),
    ),
    Case("seek", equals({"seek": 7, "beginning": 0, "end": 20}), Topic(seeded=20)),
    Case(
        "offsets-for-times",
        equals({"before": 0, "exact": 5, "between": 6, "after": None}),
        Topic(seeded=20),
    ),
    Case("commit-resume", _commit_resumes, Topic(seeded=10)),
    Case("group", _group, Topic(partitions=GROUP_PARTITIONS, seeded=10)),
    Case(
        "create-delete-topic",
        equals({"partitions": 3, "again": 36, "listed": True, "listed_after_delete": False}),
        topic=None,
    ),
    Case("configs", equals({"default": "604800000", "altered": "7200000"})),
    Case("create-partitions", equals({"partitions": 3})),
    Case("delete-records", equals({"low_watermark": 5, "earliest": 5}), Topic(seeded=10)),
)


def settled(ask: Callable[[], T], wanted: T) -> T:
    """Ask until the answer is the wanted one; Kafka tells its brokers of a change a little later.

    The last answer if it never is, for the check to complain about.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS_MAX
    while (answer := ask()) != wanted and time.monotonic() < deadline:
        pass
    return answer


def cases_without(lacks: Mapping[str, str], cases: Collection[Case] = CASES) -> list[Case]:
    """The cases of a client, given those that it lacks by name, each with the reason."""
    unknown = lacks.keys() - {case.name for case in cases}
    assert not unknown, f"no such case: {unknown}"
    return [case for case in cases if case.name not in lacks]

"""A workload on a disk that loses power: producers, logs, and what each of them was promised."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.faults.checker import Anomaly, Operation, check
from tests.faults.disks import (
    DATA,
    START_MS,
    append,
    batch_of,
    compacted,
    make_durable,
    open_manager,
    read_all,
)
from tests.storage.faulty_files import PowerCut, PowerLossFileSystem

from headrace.storage import Log, LogManager
from headrace.storage.cleaner import Cleaner

T = TypeVar("T")

IN_FLIGHT_MAX = 5
KEYS = "abcdef"
PRODUCER = 7


class WatchedDisk(PowerLossFileSystem):
    """Tells somebody before each operation that changes it or makes a change durable."""

    def __init__(self) -> None:
        super().__init__()
        self.before_operation: Callable[[], None] | None = None

    def _operate(self) -> None:
        if self.before_operation is not None:
            self.before_operation()
        super()._operate()


class LyingDisk(WatchedDisk):
    """A mutant: says that the log files are synced and does nothing."""

    def sync_inode(self, inode: Any) -> None:
        if any(inode is self._find(path) for path in self._log_files()):
            self._operate()
        else:
            super().sync_inode(inode)

    def _log_files(self) -> list[str]:
        return [
            f"{DATA}/{folder}/{name}"
            for folder in self.list(DATA)
            if self.is_dir(f"{DATA}/{folder}")
            for name in self.list(f"{DATA}/{folder}")
            if name.endswith(".log")
        ]


@dataclass
class Sent:
    """One batch of the idempotent producer of a log."""

    base_sequence: int
    values: list[str]
    keys: list[str]
    base_offset: int = -1

    def batch(self) -> bytearray:
        return batch_of(
            self.values,
            producer_id=PRODUCER,
            base_sequence=self.base_sequence,
            keys=self.keys,
            codec=self.base_sequence % 5,
        )


@dataclass
class Promises:
    """What a producer sent to one log, what it was promised, and what is still in flight."""

    topic: str
    acknowledged: list[Sent] = field(default_factory=list)
    in_flight: list[Sent] = field(default_factory=list)
    next_sequence: int = 0

    def operations(self) -> list[Operation]:
        key = f"{self.topic}-0"
        acknowledged = [
            (sent.base_offset + index, value)
            for sent in self.acknowledged
            for index, value in enumerate(sent.values)
        ]
        maybe = [(None, value) for sent in self.in_flight for value in sent.values]
        return [
            Operation(0, "send", key, list(acknowledged)),
            Operation(0, "maybe", key, list(maybe)),
        ]

    def copy(self) -> Promises:
        return Promises(self.topic, [*self.acknowledged], [*self.in_flight], self.next_sequence)


class Workload:
    """Two plain logs and a compacted one, driven at random; crashes are looked at on copies."""

    def __init__(self, disk: WatchedDisk, seed: int):
        self.disk = disk
        self.random = random.Random(seed)
        self.promises = {topic: Promises(topic) for topic in ("t", "u", "compacted")}
        self.manager = open_logs(disk)
        for topic in self.promises:
            if self.manager.get(topic, 0) is None:
                self.manager.create(topic, 0, bytes(16))
        self._configure()

    def step(self) -> None:
        action = self.random.choices(
            [self.send, self.acknowledge, self.roll, self.checkpoint, self.restart, self.compact],
            [12, 5, 1, 1, 0.3, 0.7],
        )[0]
        action()

    def log(self, topic: str) -> Log:
        log = self.manager.get(topic, 0)
        assert log is not None
        return log

    def send(self) -> None:
        promise = self.random.choice(list(self.promises.values()))
        if len(promise.in_flight) >= IN_FLIGHT_MAX:
            self.acknowledge()
        count = self.random.randint(1, 3)
        first = promise.next_sequence
        sent = Sent(
            first,
            [f"{promise.topic}{first + index}" for index in range(count)],
            [self.random.choice(KEYS) for _ in range(count)],
        )
        promise.next_sequence += count
        promise.in_flight.append(sent)
        sent.base_offset = append(self.log(promise.topic), sent.batch()).base_offset

    def acknowledge(self) -> None:
        """Sync every log and answer its producer, as acks=all does."""
        for promise in self.promises.values():
            make_durable(self.log(promise.topic))
            promise.acknowledged += promise.in_flight
            promise.in_flight = []

    def roll(self) -> None:
        self.log(self.random.choice(list(self.promises))).roll(START_MS)

    def checkpoint(self) -> None:
        self.manager.checkpoint()

    def restart(self) -> None:
        self.manager.close()
        # A clean stop syncs everything, but whoever was not answered was promised nothing.
        self.manager = open_logs(self.disk)
        self._configure()
        self.acknowledge()

    def compact(self) -> None:
        """Clean the compacted log, swap its segments, and purge what was replaced."""
        log = self.log("compacted")
        log.roll(START_MS)
        self.acknowledge()
        self.manager.checkpoint()
        asyncio.run(cleaner(self.manager, self.disk).clean_next(START_MS))
        purge = self.manager.begin_purge(START_MS)
        if purge is not None:
            purge.run()

    def _configure(self) -> None:
        self.log("compacted").config = compacted()


def open_logs(disk: PowerLossFileSystem) -> LogManager:
    return open_manager(disk)


def cleaner(manager: LogManager, disk: PowerLossFileSystem) -> Cleaner:
    async def in_worker(function: Callable[..., T], /, *args: object) -> T:
        return function(*args, disk)

    async def in_thread(function: Callable[[], T], /) -> T:
        return function()

    return Cleaner(manager, in_worker, in_thread)


class RecoveredDisk:
    """A disk after a crash: recovered, read, written to again, read again."""

    def __init__(self, disk: PowerLossFileSystem, promises: list[Promises]):
        self.disk = disk
        self.promises = [promise.copy() for promise in promises]
        self.manager: LogManager | None = None

    def recover(self, rng: random.Random, crashes: int = 0) -> None:
        """Open all logs; this many times the power fails again on the way."""
        for _ in range(crashes):
            self.disk.cut_at = self.disk.operations + rng.randint(0, 25)
            try:
                self.manager = open_logs(self.disk)
            except PowerCut:
                self.disk = self.disk.crash(rng, reorder_names=rng.random() < 0.3)
            else:
                self.disk.cut_at = None
                return
        self.disk.cut_at = None
        self.manager = open_logs(self.disk)

    def log(self, topic: str) -> Log | None:
        assert self.manager is not None
        return self.manager.get(topic, 0)

    def anomalies(self) -> list[Anomaly]:
        """The checker's verdict on what a fresh reader finds now."""
        history: list[Operation] = []
        for promise in self.promises:
            history += promise.operations()
            log = self.log(promise.topic)
            rows = read_all(log) if log is not None else []
            if promise.topic == "compacted":
                rows = self._without_compaction(promise, rows)
            history.append(Operation(9, "final", f"{promise.topic}-0", list(rows)))
        return check(history)

    def retry(self) -> None:
        """Every producer sends what was not acknowledged again, and then one more batch."""
        assert self.manager is not None
        for promise in self.promises:
            log = self.log(promise.topic) or self.manager.create(promise.topic, 0, bytes(16))
            following = Sent(promise.next_sequence, [f"{promise.topic}-last"], [KEYS[0]])
            for sent in (*promise.in_flight, following):
                sent.base_offset = append(log, sent.batch()).base_offset
            make_durable(log)
            promise.acknowledged += [*promise.in_flight, following]
            promise.in_flight = []

    def _without_compaction(
        self, promise: Promises, rows: list[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """The rows of a compacted log with what it may have dropped put back.

        A value may be missing only when a later one of its key is there.
        """
        keys: dict[str, str] = {}
        for sent in (*promise.acknowledged, *promise.in_flight):
            keys.update(zip(sent.values, sent.keys, strict=True))
        newest = {keys[value]: offset for offset, value in rows}
        there = {value for _, value in rows}
        dropped = [
            (sent.base_offset + index, value)
            for sent in promise.acknowledged
            for index, (value, key) in enumerate(zip(sent.values, sent.keys, strict=True))
            if value not in there and newest.get(key, -1) > sent.base_offset + index
        ]
        return sorted([*rows, *dropped])

"""The machine that the broker runs on: a disk, a clock, and a process that can be killed.

The broker is the real one, with `Broker.start()`: connections, router, API functions, shards, the
coordinators inside them, log files and their recovery. Only what it has from the operating system
is replaced: threads, the machine's clock, randomness, files (`tests/storage/faulty_files.py`),
sockets (`network.py`), and SQLite, which is trusted to keep what it has committed.

To run the pure coordinators alone against a model of everything around them would be several times
as fast, but the promises are kept or broken between the parts: in what is answered before which log
is durable, in what a recovery makes of two logs of which one is ahead. And a start takes 4 ms, a
request 0.2 ms, so that a world with three crashes and a hundred requests takes 30 to 50 ms.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.simulation.network import Network
from tests.simulation.world import Process, Threads, World
from tests.storage.faulty_files import PowerLossFileSystem

from headrace.broker import broker as broker_module
from headrace.broker import node as node_module
from headrace.broker.broker import Broker
from headrace.broker.clock import WakeUp
from headrace.broker.connection import Connection
from headrace.config import BROKER_ROWS, Settings
from headrace.metadata.planning import NewTopic
from headrace.metadata.store import (
    ROOT,
    BadVersionError,
    Create,
    EntryExistsError,
    MetadataEntry,
    NoEntryError,
    Op,
    Set,
    parent_of,
)
from headrace.storage.log import sync as sync_module

DATA = "/data"
START_MS = 1_700_000_000_000

BASE_SETTINGS: dict[str, object] = {
    "log.dirs": DATA,
    "listeners": "PLAINTEXT://broker:9092",
    "headrace.allow.insecure.listen": True,
    "headrace.sendfile": False,
    "socket.send.buffer.bytes": -1,
    "socket.receive.buffer.bytes": -1,
    # One partition each: every group and every transaction shares one log.
    "offsets.topic.num.partitions": 1,
    # Compaction runs in processes of its own, which cannot see a disk in memory.
    "log.cleaner.enable": False,
    "group.min.session.timeout.ms": 1_000,
    "log.retention.ms": -1,
}


def log_settings(world: World) -> dict[str, object]:
    """How this world's logs are kept: in one piece or in many, looked after often or seldom."""
    segment_bytes = world.chance.choice((1 << 20, 1 << 20, 700))
    return {
        "log.segment.bytes": segment_bytes,
        "offsets.topic.segment.bytes": segment_bytes,
        "transaction.state.log.segment.bytes": segment_bytes,
        "log.index.interval.bytes": world.chance.choice((4_096, 100)),
        "log.initial.task.delay.ms": 500,
        "log.flush.offset.checkpoint.interval.ms": world.chance.choice((60_000, 1_000)),
    }


class Clock:
    """The machine's clock; the wall clock can be set, the monotonic one cannot."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.step_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.step_ms + self._world.now_ms

    def monotonic_ms(self) -> int:
        return self._world.now_ms

    def wake_after(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, wake: Callable[[], None]
    ) -> WakeUp:
        return loop.call_later(delay_ms / 1000, wake)


class Machine:
    """Runs one broker at a time; `kill` it or let its power fail, and `start` it again."""

    def __init__(self, world: World, network: Network, settings: dict[str, object]) -> None:
        self.world = world
        self.network = network
        self.clock = Clock(world)
        self.disk = PowerLossFileSystem()
        self.disk.mkdir(DATA)
        self.disk.sync_dir(ROOT)
        self.entries: dict[str, MetadataEntry] = {ROOT: MetadataEntry(b"", 0)}
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.starts = 0
        self.thread_us: tuple[int, int] | None = None
        self._settings = BASE_SETTINGS | log_settings(world) | settings

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.alive

    async def start(self) -> None:
        """Start the broker; returns when it listens, or is killed before."""
        self.starts += 1
        process = Process(self.world, f"broker-{self.starts}")
        if self.thread_us is not None:
            process.thread_us = self.thread_us
        self.process = process
        self.network.server = process
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process.on_death.append(lambda: settle(started))
        process.create_task(self._serve(started))
        await started

    async def _serve(self, started: asyncio.Future[None]) -> None:
        settings = Settings.parse(BROKER_ROWS, self._settings)
        self.broker = Broker(settings, clock=self.clock, files=self.disk)
        try:
            await self.broker.start()
        except Exception as error:
            if not started.done():
                started.set_exception(error)
            return
        # A set of objects has another order in every process; here one seed is one story.
        self.broker.server._connections = Ordered()  # type: ignore[assignment]
        settle(started)

    def kill(self) -> None:
        """End the process; what it has written is still in the page cache, and comes to disk."""
        if self.process is not None and self.process.alive:
            self.world.tell(self.process.name, "is killed")
            self.process.kill()
            self.disk = self.disk.crash(self.world.chance, keep_probability=1)

    def lose_power(self, keep: float | None = None) -> None:
        """End the process and lose, of what is not synced, any part, or all but a part."""
        if self.process is not None and self.process.alive:
            self.world.tell(self.process.name, "loses its power")
            self.process.kill()
            if keep is None:
                keep = self.world.chance.choice((0.0, 0.5, 0.9))
            self.disk = self.disk.crash(self.world.chance, keep_probability=keep)

    async def stop(self) -> None:
        """Close the broker as an operator would."""
        process, broker = self.process, self.broker
        if process is None or broker is None or not process.alive:
            return
        self.world.tell(process.name, "is stopped")
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process.on_death.append(lambda: settle(stopped))
        closing = process.create_task(broker.close())
        closing.add_done_callback(lambda _: process.kill())
        await stopped
        # Its files are closed, not its machine: the page cache is as it was.
        self.disk = self.disk.crash(self.world.chance, keep_probability=1)

    async def create_topic(self, name: str, partitions: int, **config: str) -> None:
        """Make a topic and wait for it; the broker must be running."""
        process, broker = self.process, self.broker
        assert process is not None
        assert broker is not None
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def make() -> None:
            settings: dict[str, str | None] = dict(config)
            await broker.node.topics.create([NewTopic(name, partitions, config=settings)])
            made.set_result(None)

        process.create_task(make())
        await made

    @contextmanager
    def hardware(self) -> Iterator[None]:
        """Give the broker's modules this machine instead of the real one."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(node_module, "ThreadPoolExecutor", Threads))
            stack.enter_context(patch.object(sync_module, "Threads", Threads))
            stack.enter_context(patch.object(node_module, "SystemClock", lambda: self.clock))
            stack.enter_context(patch.object(broker_module, "SqliteStore", self))
            stack.enter_context(patch.object(Path, "mkdir", lambda *_, **__: None))
            stack.enter_context(patch.object(os, "urandom", self.world.urandom))
            yield

    async def open(self, path: Path) -> Store:
        """Stands in for `SqliteStore.open`."""
        return Store(self.entries, self.world)


class Ordered(dict[Connection, None]):
    """As much of a set as a server needs of its connections, in the order of their coming."""

    def add(self, connection: Connection) -> None:
        self[connection] = None

    def discard(self, connection: Connection) -> None:
        self.pop(connection, None)


def settle(future: asyncio.Future[None]) -> None:
    """Let the waiting caller go on, once."""
    if not future.done():
        future.set_result(None)


class Store:
    """The metadata store: what was committed survives every crash."""

    def __init__(self, entries: dict[str, MetadataEntry], world: World) -> None:
        self._entries = entries
        self._world = world

    async def _wait(self) -> None:
        await asyncio.sleep(self._world.between(0, 2_000) / 1e6)

    async def read(self, path: str) -> MetadataEntry | None:
        await self._wait()
        return self._entries.get(path)

    async def read_children(self, path: str) -> dict[str, MetadataEntry]:
        await self._wait()
        return {
            name.rpartition("/")[2]: entry
            for name, entry in sorted(self._entries.items())
            if name != ROOT and parent_of(name) == path
        }

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        await self._wait()
        after = dict(self._entries)
        versions = []
        for op in ops:
            entry = after.get(op.path)
            if isinstance(op, Create):
                if entry is not None:
                    raise EntryExistsError(op.path)
                if parent_of(op.path) not in after:
                    raise NoEntryError(op.path)
                after[op.path] = MetadataEntry(op.data, 0)
                versions.append(0)
                continue
            if entry is None:
                raise NoEntryError(op.path)
            if op.version not in (-1, entry.version):
                raise BadVersionError(op.path)
            if isinstance(op, Set):
                after[op.path] = MetadataEntry(op.data, entry.version + 1)
                versions.append(entry.version + 1)
            else:
                after.pop(op.path)
                versions.append(-1)
        self._entries.clear()
        self._entries.update(after)
        await self._wait()
        return versions

    async def close(self) -> None:
        """Nothing is held open."""

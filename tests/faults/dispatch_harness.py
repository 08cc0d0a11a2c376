"""Nodes in folders of their own, a Kafka, a Redis, what is done to them, and what became of all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from confluent_kafka import Consumer, TopicPartition
from tests.faults.dispatch_checker import DispatchChecker, DispatchEvent
from tests.faults.dispatch_node import JOURNAL, LIMITS, NodeConfig
from tests.redis_server import RedisServer

from headrace.dispatch.records import parse_outcome
from headrace.dispatch.spool.file import FileSpool
from headrace.dispatch.tokens import open_tokens

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 60.0
# When nothing has moved for this long, nothing will.
STILL_SECONDS = 60.0
BROKER_SETTINGS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
SETTINGS = {"log_level": 0, "session.timeout.ms": 3_000, "heartbeat.interval.ms": 300}


class NodeProcess:
    """`headrace dispatch run` in a folder; started again as often as it is killed."""

    def __init__(self, config: NodeConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.deaths: list[tuple[int, int]] = []
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        config.write(folder)
        (folder / JOURNAL).touch()

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace", "dispatch", "run"]
        with (self.folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "tests.faults.dispatch_node:dispatcher"],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; what it ran has ended when this returns."""
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        self.deaths.append((process.pid, time.monotonic_ns()))

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(STOP_SECONDS)

    def events(self) -> Iterator[DispatchEvent]:
        for line in (self.folder / JOURNAL).read_text().splitlines():
            note = json.loads(line)
            kind = note.pop("kind")
            for id in note.pop("ids", None) or [note.pop("id")]:
                yield DispatchEvent(kind, id=id, **note)
        for life, at_ns in self.deaths:
            yield DispatchEvent("died", at_ns, life)

    def complaint(self) -> str:
        return (self.folder / "node.log").read_text()[-3000:]


class DispatchHarness:
    """Several nodes through many faults."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        server: RedisServer,
        *,
        nodes: int,
        partitions: int,
        items: int,
        work_ms: int,
        seed: int = 1,
        spool: str = "",
    ) -> None:
        self.chance = random.Random(seed)
        self.bootstrap = bootstrap
        self.server = server
        self.partitions = partitions
        self.items = items
        self.kills = 0
        self._folder = folder
        self._pause = threading.Event()
        self._work_ms = work_ms
        self._spool = spool
        self._storms = 0
        # Tests may share a broker.
        self._topic = f"jobs-{folder.name}"
        self._done = DoneLog(bootstrap, f"{self._topic}.done")
        share, rest = divmod(items, nodes)
        self.nodes = [self._node(f"n{n}", share + (n < rest)) for n in range(nodes)]
        self._all = list(self.nodes)

    def _node(self, name: str, items: int) -> NodeProcess:
        config = NodeConfig(
            name,
            self.bootstrap,
            self.server.url,
            self._topic,
            self.partitions,
            items,
            self._work_ms,
            self._spool or f"{name}.spool",
            SETTINGS,
        )
        return NodeProcess(config, self._folder / name)

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def pass_time(self, seconds: float) -> None:
        self._pause.wait(seconds)

    def kill_one(self, *, revive: bool = True) -> NodeProcess:
        """Kill a node as a crash does, and start it again."""
        node = self.chance.choice([node for node in self.nodes if node.is_alive])
        node.kill()
        self.kills += 1
        if revive:
            node.start()
        return node

    def storm(self, times: int) -> None:
        """Let nodes join and leave faster than the group comes to rest."""
        for _ in range(times):
            self._storms += 1
            guest = self._node(f"guest-{self._storms}", 0)
            self._all.append(guest)
            guest.start()
            self.pass_time(1.0)
            guest.signal(signal.SIGTERM)

    def flush_tokens(self) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            client.flushall()

    def restart_tokens(self, away_s: float = 0.5) -> None:
        self.server.stop()
        self.pass_time(away_s)
        self.server.start()

    def wait_submitted(self, node: NodeProcess, items: int) -> None:
        """Wait until a node has submitted this many."""
        until_s = time.monotonic() + STILL_SECONDS
        while sum(event.kind == "submitted" for event in node.events()) < items:
            assert time.monotonic() < until_s, node.complaint()
            self.pass_time(0.05)

    def leave(self, node: NodeProcess) -> None:
        """Kill a node forever; what it had submitted by then is still to be done."""
        node.kill()
        self.nodes.remove(node)
        had = {event.id for event in node.events() if event.kind == "submitted"}
        self.items -= node.config.items - len(had)

    def finish(self) -> bool:
        """Wait until every item has its outcome; False when nothing moves any more."""
        last, moved_s = -1, time.monotonic()
        while True:
            finished = self._done.finished()
            if len(finished) >= self.items:
                return True
            if len(finished) > last:
                last, moved_s = len(finished), time.monotonic()
            if time.monotonic() - moved_s > STILL_SECONDS:
                return False
            self.pass_time(0.1)

    def has_all_tokens(self) -> bool:
        """Whether every partition has its one token within the healing time."""
        until_s = time.monotonic() + 4 * LIMITS.healing_ms_max / 1000 + STOP_SECONDS
        store = open_tokens(self.server.url, self._topic, LIMITS)
        try:
            while time.monotonic() < until_s:
                if store.status().counts()["idle"] == self.partitions:
                    return True
                self.pass_time(0.1)
            return False
        finally:
            store.close()

    def stop(self) -> list[int]:
        """Let all nodes end in order; their exit statuses."""
        return [node.stop() for node in self.nodes]

    def left_in_spools(self) -> int:
        """Jobs in files of nodes that have ended."""
        left = 0
        for node in self.nodes:
            spool = FileSpool(node.folder / node.config.spool)
            left += len(spool.recover().jobs)
            spool.close()
        return left

    def check(self) -> DispatchChecker:
        """The verdict over all that happened; nodes must have ended."""
        events = [event for node in self._all for event in node.events()]
        return DispatchChecker([*events, *self._done.events])

    def complaint(self) -> str:
        return "\n".join(f"{node.config.name}: {node.complaint()}" for node in self.nodes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self._all:
            if node.is_alive:
                node.kill()
        self._done.close()


class DoneLog:
    """Follows the topic of outcomes from its beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.events: list[DispatchEvent] = []
        self._finished: set[str] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "checker",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def finished(self) -> set[str]:
        """The items that have an outcome by now."""
        while records := self._consumer.consume(1000, 0.5):
            for record in records:
                if record.error() is None:
                    self._take(record)
        return self._finished

    def _take(self, record: Any) -> None:
        outcome = parse_outcome(record.key(), record.value(), record.headers())
        if outcome is not None:
            self.events.append(
                DispatchEvent("outcome", time.monotonic_ns(), id=outcome.id, state=outcome.state)
            )
            if outcome.is_final:
                self._finished.add(outcome.id)

    def close(self) -> None:
        self._consumer.close()


def every(seconds: float, steps: list[Callable[[], object]], harness: DispatchHarness) -> None:
    """Do one thing after the other, with a pause before each."""
    for step in steps:
        harness.pass_time(seconds)
        step()

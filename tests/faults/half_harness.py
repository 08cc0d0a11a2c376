"""A half service, two shops and a reader, each a process or a server of its own, through faults."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from tests.faults.clients import create_topic
from tests.faults.half_checker import HalfAnomaly, half_anomalies
from tests.faults.half_process import CLOSED, STOP_SELLING, TABLE, TARGET, HalfConfig
from tests.faults.half_reader import TargetReader
from tests.faults.hanging import AGE_MS, end_hanging

from headrace.client.message import ID_HEADER
from headrace.ledger.half.commands import HALF_HEADER, HALF_TOPIC
from headrace.ledger.half.service import HalfStatus, half_statuses
from headrace.store import open_store

ROOT = Path(__file__).parents[2]
PARTITIONS = 2
LAST = "last"
LIMIT_SECONDS = 120.0
LOOK_SECONDS = 0.05
CLIENT_SETTINGS = {
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 500,
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}


class HalfProcess:
    """One process by its name; started again after each death."""

    def __init__(self, harness: HalfHarness, role: str, name: str) -> None:
        self.role, self.name = role, name
        self._harness = harness
        self._process: subprocess.Popen[bytes] | None = None
        self.log = harness.folder / f"{name}.log"
        self._note = harness.folder / f"{name}.died"
        self._ready = harness.folder / f"{name}.ready"

    def start(self, die_at: str = "", nth: int = 1) -> None:
        assert self._process is None
        harness = self._harness
        self._note.unlink(missing_ok=True)
        self._ready.unlink(missing_ok=True)
        config = HalfConfig(
            self.role,
            self.name,
            harness.bootstrap,
            harness.store_url,
            str(harness.folder),
            die_at,
            nth,
            dict(CLIENT_SETTINGS),
        )
        path = harness.folder / f"{self.name}.json"
        config.write(path)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.half_process", str(path)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def wait_died(self, step: str) -> None:
        """Wait until it has killed itself at a step."""
        assert self._process is not None
        try:
            status = self._process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not come to {step}: {self.said()}") from None
        assert status == -signal.SIGKILL, self.said()
        assert self._note.read_text() == step
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM, as soon as it listens to that; it ends well."""
        assert self._process is not None
        self._harness.wait(self._ready.exists, f"{self.name} is ready")
        self._process.terminate()
        status = self._process.wait(LIMIT_SECONDS)
        assert status == 0, f"status {status}: {self.said()}"
        self._process = None

    def said(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else ""


class HalfHarness:
    """One shop through many faults."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        store_url: str,
        seed: int = 1,
        *,
        may_leave_hanging: bool = False,
    ) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.store_url = store_url
        self.chance = Random(seed)
        self.kills = 0
        # Whether the broker loses the ends of transactions when it dies.
        self._may_leave_hanging = may_leave_hanging
        self._engine = create_engine(store_url)
        self._pause = threading.Event()  # never set: waited on with a timeout, to let time pass
        store = open_store(store_url)
        store.create()
        with store.begin() as tx:
            tx.execute(TABLE)
        store.close()
        create_topic(bootstrap, TARGET, PARTITIONS)
        self.reader = TargetReader(bootstrap, self._engine, TARGET, PARTITIONS)
        self.service = HalfProcess(self, "service", "service")
        self.spare = HalfProcess(self, "service", "spare")
        self.shops = [HalfProcess(self, "shop", "one"), HalfProcess(self, "shop", "two")]

    def __enter__(self) -> Self:
        self.reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in (self.service, self.spare, *self.shops):
            process.kill()
        self.reader.stop()
        self._engine.dispose()

    def wait_sold(self, more: int) -> None:
        """Wait until this many more orders stand in the database."""
        target = len(self.done()) + more
        self.wait(lambda: len(self.done()) >= target, f"{more} more orders")

    def finish(self) -> list[HalfAnomaly]:
        """Let all come to its end, and judge."""
        (self.folder / STOP_SELLING).touch()
        closed = [self.folder / f"{shop.name}.{CLOSED}" for shop in self.shops]
        self.wait(lambda: all(path.exists() for path in closed), "the shops are closed")
        if self._may_leave_hanging:
            self._pause.wait(AGE_MS / 1000)
            end_hanging(self.bootstrap)
        self._say_last()
        self.wait(lambda: LAST in self._known(), "all commands are taken in")
        self.wait(lambda: not self.undecided(), "every half message is decided")
        for process in (*self.shops, self.service):
            process.stop()
        done, seen = self.done(), self.seen()
        self.wait(lambda: self.reader.seen >= len(seen), "the reader has seen all")
        early = [HalfAnomaly("half-visible", id) for id in sorted(self.reader.early)]
        return early + half_anomalies(done, seen, self.undecided())

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            words = "\n".join(process.said() for process in (self.service, *self.shops))
            assert time.monotonic() < deadline, f"not in time: {what}\n{words}"
            self._pause.wait(LOOK_SECONDS)

    def done(self) -> list[str]:
        """The orders in the database; as before while it is away."""
        try:
            with self._engine.connect() as connection:
                return [id for (id,) in connection.execute(text("SELECT id FROM orders"))]
        except SQLAlchemyError:
            return []

    def undecided(self) -> list[str]:
        """What the service holds."""
        return [id for id, half in self._known().items() if not half.is_decided and id != LAST]

    def _known(self) -> dict[str, HalfStatus]:
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        return {half.id: half for half in half_statuses(settings)}

    def _say_last(self) -> None:
        """A command behind all others of the one partition that they go through."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        headers: Any = [(HALF_HEADER, b"rollback"), (ID_HEADER, LAST.encode())]
        producer.produce(HALF_TOPIC, None, headers=headers)
        assert producer.flush(LIMIT_SECONDS) == 0

    def seen(self) -> list[str]:
        """What a fresh reader of committed records finds in the target."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "half-final",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # the end is known when a fetch has waited
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        ids: list[str] = []
        try:
            consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
            behind = set(range(PARTITIONS))
            deadline = time.monotonic() + LIMIT_SECONDS
            while behind:
                assert time.monotonic() < deadline, "the target is not read to its end"
                for record in consumer.consume(1_000, 0.2):
                    if record.error() is None:
                        ids.append(dict(record.headers())["headrace-id"].decode())
                    else:
                        behind.discard(record.partition())
        finally:
            consumer.close()
        return ids

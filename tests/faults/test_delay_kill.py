"""kill -9 of delay services and of their broker: no message early, lost or delivered twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from tests.apache_kafka import ApacheKafka
from tests.client.kafkas import Kafka
from tests.faults.processes import BrokerProcess
from tests.ledger.delay.reading import read_all
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.client import Producer
from headrace.client.delivery import Sent
from headrace.client.errors import DeliveryFailed
from headrace.ledger.delay.service import pending

TARGET = "orders"
# How late a message may be beyond its time, or beyond the last death before its delivery: that
# is the take-over.
LATE_MS_MAX = 30_000
# In the short form, which must hold on machines that are busy with other things.
BUSY_LATE_MS_MAX = 90_000
SETTINGS = ["group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4"]


class ServiceProcess:
    """`headrace service delay` as a process."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        command = [sys.executable, "-m", "headrace", "service", "delay", "-b", bootstrap]
        command += ["-X", "session.timeout.ms=6000", "-X", "log_level=0"]
        with log.open("ab") as words:
            self._process = subprocess.Popen(command, stdout=words, stderr=words)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(WAIT_SECONDS)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


class DelayHarness:
    """A broker, instances that are killed, and a client that knows what it was promised."""

    def __init__(
        self, folder: Path, seed: int, broker: BrokerProcess | ApacheKafka | None = None
    ) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.broker = broker or BrokerProcess(folder / "data", settings=SETTINGS)
        self.instances: list[ServiceProcess] = []
        # Due times by id; those whose sending failed may or may not arrive.
        self.promised: dict[str, int] = {}
        self.doubtful: set[str] = set()
        # When the last command of an id was acknowledged, or given up.
        self.sent_ms: dict[str, int] = {}
        # When somebody was killed, and a broker was there again.
        self.deaths_ms: list[int] = []
        self._stack = ExitStack()

    @property
    def kafka(self) -> Kafka:
        return Kafka("headrace", self.broker.bootstrap)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.broker)
        self.producer = self._stack.enter_context(Producer(self.kafka.quiet))
        self.kafka.topic("other")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for instance in self.instances:
            instance.kill()
        self._stack.close()

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            log = self.folder / "service.log"
            self.instances.append(ServiceProcess(self.broker.bootstrap, log))

    def send(self, count: int, most_ms: int) -> None:
        """Schedule messages; of some the time is changed, and some are cancelled and sent again."""
        sent = []
        for _ in range(count):
            id = f"m{len(self.promised)}"
            due_ms = _now_ms() + self.chance.randrange(most_ms)
            if self.chance.random() < 0.2:
                sent.append((id, self._schedule(id, due_ms + 3_600_000)))
            if self.chance.random() < 0.1:
                sent.append((id, self.producer.cancel_delayed(id)))
            self.promised[id] = due_ms
            sent.append((id, self._schedule(id, due_ms)))
        for id, outcome in sent:
            try:
                outcome.result(WAIT_SECONDS)
                self.sent_ms[id] = _now_ms()
            except DeliveryFailed:
                self.doubtful.add(id)
                self.sent_ms[id] = _now_ms()

    def _schedule(self, id: str, due_ms: int) -> Sent:
        return self.producer.send(
            TARGET, f"{id} {due_ms}".encode(), headers={"headrace-id": id}, at=due_ms
        )

    def kill_one(self) -> None:
        victim = self.instances.pop(self.chance.randrange(len(self.instances)))
        assert victim.alive, (self.folder / "service.log").read_text()[-3000:]
        victim.kill()
        self.deaths_ms.append(_now_ms())

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()
        self.deaths_ms.append(_now_ms())

    def finish(self) -> None:
        """Wait until all that was promised is there, and nothing is pending any more."""
        sure = self.promised.keys() - self.doubtful

        def arrived() -> bool:
            seen = {record.value().split()[0].decode() for record in read_all(self.kafka, TARGET)}
            return sure <= seen

        wait_until(arrived, "all is delivered", WAIT_SECONDS)
        wait_until(lambda: not [*pending(self.kafka.quiet)], "delivered", WAIT_SECONDS)

    @property
    def kills(self) -> int:
        return len(self.deaths_ms)

    def anomalies(self, late_ms_max: int) -> list[str]:
        """What the promises do not allow."""
        found: list[str] = []
        seen: set[str] = set()
        for record in read_all(self.kafka, TARGET):
            id, due_ms = record.value().decode().split()
            at_ms = record.timestamp()[1]
            if id in seen:
                found.append(f"duplicate: {id}")
            seen.add(id)
            if at_ms < int(due_ms):
                found.append(f"delay-early: {id} by {int(due_ms) - at_ms} ms")
            if int(due_ms) != self.promised[id] and id not in self.doubtful:
                found.append(f"superseded: {id} at {due_ms}")
            deaths_ms = [death_ms for death_ms in self.deaths_ms if death_ms <= at_ms]
            late_ms = at_ms - max(int(due_ms), *deaths_ms[-1:], self.sent_ms[id])
            if late_ms > late_ms_max:
                found.append(f"delay-late: {id} by {late_ms} ms")
        lost = self.promised.keys() - seen - self.doubtful
        return found + [f"lost: {id}" for id in sorted(lost)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[DelayHarness]:
    with DelayHarness(tmp_path, 7) as harness:
        yield harness


def complaint(harness: DelayHarness) -> str:
    return (harness.folder / "service.log").read_text()[-3000:]


@pytest.mark.timeout(300)
def test_killed_services_and_a_killed_broker_lose_repeat_and_hurry_nothing(
    harness: DelayHarness,
) -> None:
    harness.start(2)
    harness.send(150, 6_000)
    wait_until(lambda: read_all(harness.kafka, TARGET), "begun", WAIT_SECONDS)
    harness.kill_one()
    harness.start()
    harness.send(150, 6_000)
    harness.kill_broker()
    harness.send(100, 4_000)
    harness.kill_one()
    harness.send(50, 2_000)
    harness.finish()
    assert harness.anomalies(BUSY_LATE_MS_MAX) == [], complaint(harness)
    assert harness.instances[0].stop() == 0
    assert harness.kills == 3


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["headrace", "apache"])
def test_over_a_hundred_kills_nothing_is_early_late_lost_or_repeated(
    tmp_path: Path, kind: str, seed: int
) -> None:
    broker = None
    if kind == "apache":
        settings = dict(setting.split("=") for setting in SETTINGS)
        broker = ApacheKafka(settings=settings, data_dir=tmp_path / "kafka")
    with DelayHarness(tmp_path, seed, broker) as harness:
        harness.start(3)
        harness.send(200, 10_000)
        wait_until(lambda: read_all(harness.kafka, TARGET), "begun", WAIT_SECONDS)
        for _ in range(40):
            harness.send(
                harness.chance.randrange(50, 400), harness.chance.choice((500, 5_000, 20_000))
            )
            if harness.chance.random() < 0.25:
                harness.kill_broker()
            else:
                harness.kill_one()
                harness.start()
        harness.finish()
        assert harness.kills == 40
        assert harness.anomalies(LATE_MS_MAX) == [], complaint(harness)

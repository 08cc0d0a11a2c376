"""kill -9 of sender, handler and broker: no chunk is lost, no message is seen in part."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.faults.clients import create_topic
from tests.faults.large_app import TABLE, TOPIC, LargeConfig, digest_of
from tests.faults.large_sender import acknowledged, allow
from tests.faults.processes import BrokerProcess

from headrace.store import open_store

PARTITIONS = 2
# When nothing has moved for this long, nothing will.
STILL_SECONDS = 60.0
BROKER_SETTINGS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
ROOT = Path(__file__).parents[2]
# By `python -m`, in the folder of the test.
PROGRAMS = {
    "handler": ("headrace", "run", "tests.faults.large_app:app"),
    "sender": ("tests.faults.large_sender", "."),
}

SHORT_ROUNDS, SHORT_PER_KILL = 3, 8
# 120 kills.
LONG_ROUNDS, LONG_PER_KILL = 40, 30


class LargeHarness:
    """A broker, a handler and a sender, each of them killed again and again."""

    def __init__(self, folder: Path, way: str, messages: int, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.broker = BrokerProcess(folder / "data", settings=BROKER_SETTINGS)
        url = f"sqlite:///{folder}/store.db"
        self.config = LargeConfig(self.broker.bootstrap, url, way, str(folder / "claims"), messages)
        self._engine = create_engine(url)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pause = threading.Event()
        store = open_store(url)
        store.create()
        with store.begin() as tx:
            tx.execute(TABLE)
        store.close()
        self.config.write(folder)
        allow(folder, 0)

    @contextmanager
    def open(self) -> Iterator[LargeHarness]:
        with self.broker:
            create_topic(self.broker.bootstrap, TOPIC, PARTITIONS)
            try:
                for name in PROGRAMS:
                    self._start(name)
                yield self
            finally:
                for name in self._processes:
                    self._stop(name)
                self._engine.dispose()

    def _start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *PROGRAMS[name]],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def _stop(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def kill(self, victim: str) -> None:
        """Kill one of the three, and start it again."""
        self.kills[victim] += 1
        if victim in PROGRAMS:
            self._stop(victim)
            self._start(victim)
        else:
            self.broker.kill()
            self.broker.start()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, as long as anything moves."""
        last: object = None
        until_s = time.monotonic() + STILL_SECONDS
        while not condition():
            now = (acknowledged(self.folder), self.handled())
            if now != last:
                last, until_s = now, time.monotonic() + STILL_SECONDS
            assert time.monotonic() < until_s, f"{what}: {now}, {self.complaints()}"
            self._pause.wait(0.02)

    def handled(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM handled")).scalar_one())

    def check(self) -> None:
        """Every message was seen once, and whole."""
        with self._engine.connect() as connection:
            seen = connection.execute(text("SELECT id, digest FROM handled")).all()
        assert [id for id, count in Counter(id for id, _ in seen).items() if count > 1] == []
        lost = set(map(str, range(acknowledged(self.folder)))) - {id for id, _ in seen}
        assert lost == set(), self.complaints()
        assert [id for id, digest in seen if digest != digest_of(int(id))] == []

    def complaints(self) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text()[-2000:] for name in PROGRAMS)


def kill_again_and_again(harness: LargeHarness, rounds: int, per_kill: int) -> None:
    victims = ["sender", "handler", "broker"] * rounds
    harness.chance.shuffle(victims)
    for number, victim in enumerate(victims):
        # Somewhere inside what is sent and seen now, never at a boundary that a test could know.
        wanted = number * per_kill + harness.chance.randint(1, per_kill)
        allow(harness.folder, (number + 1) * per_kill)
        count = harness.handled if victim == "handler" else lambda: acknowledged(harness.folder)
        harness.wait_for(lambda: count() >= wanted, f"{wanted} messages before {victim} dies")  # noqa: B023
        harness.kill(victim)
    total = harness.config.messages
    allow(harness.folder, total)
    harness.wait_for(lambda: acknowledged(harness.folder) >= total, "all messages are sent")
    harness.wait_for(lambda: harness.handled() >= total, "all messages are seen")
    harness.check()
    assert sum(harness.kills.values()) == 3 * rounds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_no_chunk_is_lost_whoever_is_killed(tmp_path: Path, way: str) -> None:
    # With claim checks a smoke: their bodies do not pass through the broker.
    rounds = SHORT_ROUNDS if way == "chunks" else 1
    messages = (3 * rounds + 1) * SHORT_PER_KILL
    with LargeHarness(tmp_path, way, messages, seed=1).open() as harness:
        kill_again_and_again(harness, rounds, SHORT_PER_KILL)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_no_chunk_is_lost_over_a_hundred_kills(tmp_path: Path, way: str) -> None:
    messages = (3 * LONG_ROUNDS + 1) * LONG_PER_KILL
    with LargeHarness(tmp_path, way, messages, seed=2).open() as harness:
        kill_again_and_again(harness, LONG_ROUNDS, LONG_PER_KILL)
        assert sum(harness.kills.values()) >= 100

"""kill -9 of the sender, the handler and the broker: no chunk is lost, no film is seen in part."""

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
from tests.faults.films import TABLE, TOPIC, FilmsConfig, digest_of
from tests.faults.films_sender import acknowledged, allow
from tests.faults.processes import BrokerProcess

from headrace.store import open_store

PARTITIONS = 2
# Nothing moved for so long: nothing will.
STILL_SECONDS = 60.0
BROKER_SETTINGS = ("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000")
ROOT = Path(__file__).parents[2]
# By `python -m`, in the folder of the test.
PROGRAMS = {
    "handler": ("headrace", "run", "tests.faults.films:app"),
    "sender": ("tests.faults.films_sender", "."),
}

SHORT_ROUNDS, SHORT_FILMS_PER_KILL = 3, 8
# 120 kills.
LONG_ROUNDS, LONG_FILMS_PER_KILL = 40, 30


class Cinema:
    """A broker, a handler and a sender, each of them killed again and again."""

    def __init__(self, folder: Path, way: str, films: int, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.broker = BrokerProcess(folder / "data", settings=BROKER_SETTINGS)
        url = f"sqlite:///{folder}/films.db"
        self.config = FilmsConfig(self.broker.bootstrap, url, way, str(folder / "claims"), films)
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
    def open(self) -> Iterator[Cinema]:
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
            now = (acknowledged(self.folder), self.viewings())
            if now != last:
                last, until_s = now, time.monotonic() + STILL_SECONDS
            assert time.monotonic() < until_s, f"{what}: {now}, {self.complaints()}"
            self._pause.wait(0.02)

    def viewings(self) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM viewings")).scalar_one())

    def check(self) -> None:
        """Every film was seen once, and whole."""
        with self._engine.connect() as connection:
            seen = connection.execute(text("SELECT id, digest FROM viewings")).all()
        assert [id for id, count in Counter(id for id, _ in seen).items() if count > 1] == []
        lost = set(map(str, range(acknowledged(self.folder)))) - {id for id, _ in seen}
        assert lost == set(), self.complaints()
        assert [id for id, digest in seen if digest != digest_of(int(id))] == []

    def complaints(self) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text()[-2000:] for name in PROGRAMS)


def kill_again_and_again(cinema: Cinema, rounds: int, films_per_kill: int) -> None:
    victims = ["sender", "handler", "broker"] * rounds
    cinema.chance.shuffle(victims)
    for number, victim in enumerate(victims):
        # Somewhere inside what is sent and seen now, never at a boundary that a test could know.
        wanted = number * films_per_kill + cinema.chance.randint(1, films_per_kill)
        allow(cinema.folder, (number + 1) * films_per_kill)
        count = cinema.viewings if victim == "handler" else lambda: acknowledged(cinema.folder)
        cinema.wait_for(lambda: count() >= wanted, f"{wanted} films before {victim} dies")  # noqa: B023
        cinema.kill(victim)
    total = cinema.config.films
    allow(cinema.folder, total)
    cinema.wait_for(lambda: acknowledged(cinema.folder) >= total, "all films are sent")
    cinema.wait_for(lambda: cinema.viewings() >= total, "all films are seen")
    cinema.check()
    assert sum(cinema.kills.values()) == 3 * rounds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_no_chunk_is_lost_whoever_is_killed(tmp_path: Path, way: str) -> None:
    # With claim checks a smoke: their bodies do not pass through the broker.
    rounds = SHORT_ROUNDS if way == "chunks" else 1
    films = (3 * rounds + 1) * SHORT_FILMS_PER_KILL
    with Cinema(tmp_path, way, films, seed=1).open() as cinema:
        kill_again_and_again(cinema, rounds, SHORT_FILMS_PER_KILL)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_no_chunk_is_lost_over_a_hundred_kills(tmp_path: Path, way: str) -> None:
    films = (3 * LONG_ROUNDS + 1) * LONG_FILMS_PER_KILL
    with Cinema(tmp_path, way, films, seed=2).open() as cinema:
        kill_again_and_again(cinema, LONG_ROUNDS, LONG_FILMS_PER_KILL)
        assert sum(cinema.kills.values()) >= 100

"""One round of one broker: start it, load it, read what it used, stop it, clean up.

What is loaded and recorded is a bench's own; how, is the same for all and lives here.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks import figures, process
from benchmarks.figures import Load, Values
from benchmarks.generator import Answer, Generator
from benchmarks.machine import folder_bytes, touch_memory
from benchmarks.peers import Peer, Running

_SETTLE_SECONDS_MAX = 20.0
_SETTLED_BYTES = 64 << 20
MEGABYTE = 1e6


@dataclass(frozen=True)
class Sizes:
    """How long and how much: a load ends at whichever comes first."""

    warm_passes_max: int
    seconds: float
    bytes_max: int
    java_records: int
    java_seconds: float


FULL = Sizes(
    warm_passes_max=10,
    seconds=5.0,
    bytes_max=1_500_000_000,
    java_records=1_000_000,
    java_seconds=5.0,
)
QUICK = Sizes(
    warm_passes_max=6,
    seconds=2.0,
    bytes_max=500_000_000,
    java_records=100_000,
    java_seconds=2.0,
)

_BURST_SECONDS = 1.5
_BURST_BYTES_MAX = 500_000_000
# A broker is warm when its processor time per request has stopped falling below this share.
_STEADY_SHARE = 0.95
_STEADY_PASSES = 2
_TOUCH_MARGIN = 1.2
_DISK_BYTES_MAX = 3_000_000_000
_INTERNAL = "__"  # what the names of internal topics begin with


class Trial:
    """Measures one broker, a round at a time; `values` gains one value per figure and round."""

    def __init__(
        self,
        peer: Peer,
        program: Path,
        folder: Path,
        sizes: Sizes,
        parts: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self.peer = peer
        self.sizes = sizes
        self.parts = parts
        self.say = say
        self._program = program
        self._folder = folder
        self._topics = 0
        self.values: Values = {}
        self.answers: dict[str, list[Answer]] = {}

    def round(self) -> None:
        """Run every chosen part once, each group on a broker with a fresh folder."""
        raise AssertionError("a bench says what its rounds are")

    def fresh(self, work: Callable[[], None]) -> None:
        """Do some work in an empty folder; the broker is stopped and the folder removed after."""
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            work()
        finally:
            self.peer.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
            os.sync()

    def record(self, figure: figures.Figure, value: float) -> None:
        """Note a figure's value of this round."""
        self.values.setdefault(figure.name, []).append(value)

    def start(self, probe: str = "ready", **wanted: object) -> tuple[Running, Generator, float]:
        """Start the broker; the time runs from its process's birth to the answer waited for."""
        running = self.peer.start(self._folder)
        generator = Generator(self._program, running.bootstrap)
        answer = generator.run(probe, **wanted)
        return running, generator, float(answer["serving_unix_ns"]) / 1e9 - running.started_at

    def run_loads(self, running: Running, generator: Generator, loads: list[Load]) -> None:
        """Warm the broker up with all loads, then measure each, and the memory of all."""
        if not loads:
            return
        with process.MemoryWatch(running.pid) as memory:
            written = self._warm_up(running, generator, loads)
            for load in loads:
                self.say(load.name)
                self._load(running, generator, load, written[load.name])
        self.record(figures.MEMORY, memory.rss_peak_bytes / MEGABYTE)
        self.record(figures.MEMORY_PSS, memory.pss_peak_bytes / MEGABYTE)

    def _load(
        self, running: Running, generator: Generator, load: Load, written_bytes_per_second: float
    ) -> None:
        sizes = self.sizes
        self._settle(_SETTLED_BYTES)
        wanted = _TOUCH_MARGIN * written_bytes_per_second * sizes.seconds
        touch_memory(self._folder, int(min(wanted, _TOUCH_MARGIN * sizes.bytes_max)))
        answer = self._on_topic(running, generator, load, sizes.seconds, sizes.bytes_max)
        self._settle(_SETTLED_BYTES)
        self.answers.setdefault(load.name, []).append(answer)
        for key, figure in load.figures.items():
            self.record(figure, measurement(answer, key))

    def _warm_up(
        self, running: Running, generator: Generator, loads: list[Load]
    ) -> dict[str, float]:
        """All loads in turn, again and again, until a whole pass gets no cheaper.

        All before any is measured: what the JVM has not compiled yet would make the first rows
        look worse than the last. Returns the bytes that each load writes per second.
        """
        first: dict[str, float] = {}
        passes: list[float] = []
        fastest = {load.name: 0.0 for load in loads}
        while not is_steady(passes) and len(passes) < self.sizes.warm_passes_max:
            shares = []
            for load in loads:
                burst = self._on_topic(running, generator, load, _BURST_SECONDS, _BURST_BYTES_MAX)
                cost = measurement(burst, figures.CPU_REQ)
                shares.append(cost / first.setdefault(load.name, cost))
                if load.mode == "produce":
                    rate = measurement(burst, figures.MB_S) * MEGABYTE
                    fastest[load.name] = max(fastest[load.name], rate)
                self._settle(_DISK_BYTES_MAX)
            passes.append(fmean(shares))
            self.say(f"warm-up {len(passes)}: {passes[-1]:.0%} of the first pass's CPU")
        return fastest

    def _on_topic(
        self, running: Running, generator: Generator, load: Load, seconds: float, bytes_max: int
    ) -> Answer:
        """Run the load on a topic of its own, which is deleted afterwards."""
        self._topics += 1
        topic = {"topic": f"{load.name}-{self._topics}", "partitions": load.partitions}
        generator.run("create", **topic)
        if load.fill_bytes:
            generator.run("produce", **topic, seconds=60, bytes_max=load.fill_bytes)
        os.sync()
        flags = dict(load.flags, **topic, seconds=seconds)
        if load.mode == "produce":
            flags["bytes_max"] = bytes_max
        before = process.cpu_seconds(running.pid)
        answer = generator.run(load.mode, **flags)
        answer["broker_cpu_seconds"] = process.cpu_seconds(running.pid) - before
        generator.run("delete", topic=topic["topic"])
        return answer

    def _settle(self, limit_bytes: int) -> None:
        """Wait until deleted topics have left the disk and nothing is on its way to it.

        What coordinators have written stays.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS_MAX
        while time.monotonic() < deadline:
            if folder_bytes(self._folder, without=_INTERNAL) <= limit_bytes:
                break
            time.sleep(0.1)
        os.sync()


def is_steady(costs: list[float]) -> bool:
    """Whether each of the last passes cost about as much as the best before it, or more."""
    if len(costs) <= _STEADY_PASSES:
        return False
    best = min(costs[:-_STEADY_PASSES])
    return all(cost >= best * _STEADY_SHARE for cost in costs[-_STEADY_PASSES:])


def measurement(answer: Answer, key: str) -> float:
    """A figure's value out of the generator's answer and the broker's processor time."""
    if key == figures.CPU_MB:
        return float(answer["broker_cpu_seconds"] * 1e3 / (answer["bytes"] / MEGABYTE))
    if key == figures.CPU_REQ:
        return float(answer["broker_cpu_seconds"] * 1e6 / answer["requests"])
    if key in answer:
        return float(answer[key])
    return float(answer["latency_ms"][key])

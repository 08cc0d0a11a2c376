"""One round of one broker: start it, load it, read what it used, stop it, clean up."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks import figures, java_tools, process
from benchmarks.figures import Load, Values
from benchmarks.generator import Answer, Generator
from benchmarks.machine import folder_bytes, touch_memory
from benchmarks.peers import Peer, Running

_MANY_PARTITIONS = 1000
_IDLE_CONNECTIONS = 5000
_SETTLE_SECONDS_MAX = 20.0
_SETTLED_BYTES = 64 << 20
_MB = 1e6


@dataclass(frozen=True)
class Sizes:
    """How long and how much: a load ends at whichever comes first."""

    warm_passes_max: int
    seconds: float
    bytes_max: int
    java_records: int


FULL = Sizes(warm_passes_max=10, seconds=5.0, bytes_max=1_500_000_000, java_records=1_000_000)
QUICK = Sizes(warm_passes_max=6, seconds=2.0, bytes_max=500_000_000, java_records=100_000)

_BURST_SECONDS = 1.5
_BURST_BYTES_MAX = 500_000_000
# A broker is warm when its processor time per request has stopped falling below this share.
_STEADY_SHARE = 0.95
_STEADY_PASSES = 2
_TOUCH_MARGIN = 1.2
_DISK_BYTES_MAX = 3_000_000_000


class Trial:
    """Measures one broker once; `values` gains one value per figure and round."""

    def __init__(
        self,
        peer: Peer,
        program: Path,
        folder: Path,
        sizes: Sizes,
        parts: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self._peer = peer
        self._program = program
        self._folder = folder
        self._sizes = sizes
        self._parts = parts
        self._say = say
        self._topics = 0
        self.values: Values = {}
        self.answers: dict[str, list[Answer]] = {}

    def round(self) -> None:
        """Run every chosen part once, each group on a broker with a fresh folder."""
        if {"starts", "idle"} & set(self._parts):
            self._fresh(self._starts_and_idle)
        loads = [load for load in figures.LOADS if load.name in self._parts]
        if loads or "java" in self._parts:
            self._fresh(lambda: self._loads(loads))

    def _fresh(self, work: Callable[[], None]) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            work()
        finally:
            self._peer.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
            os.sync()

    def _record(self, figure: figures.Figure, value: float) -> None:
        self.values.setdefault(figure.name, []).append(value)

    # Starts and idle connections ---------------------------------------------------------------

    def _starts_and_idle(self) -> None:
        running, generator, served_s = self._start()
        if "idle" in self._parts:
            self._say("idle connections")
            held = generator.hold(_IDLE_CONNECTIONS)
            time.sleep(1.0)
            self._record(figures.IDLE, process.resident_bytes(running.pid) / _MB)
            held.release()
        if "starts" not in self._parts:
            return
        self._record(figures.START_EMPTY, served_s)
        self._say("1,000 partitions")
        made = generator.run("create", topic="many", partitions=_MANY_PARTITIONS)
        self._record(figures.CREATE_TOPIC, float(made["seconds"]))
        self._peer.stop()
        _, _, served_s = self._start(topic="many", partitions=_MANY_PARTITIONS)
        self._record(figures.START_FULL, served_s)

    def _start(self, **wanted: object) -> tuple[Running, Generator, float]:
        """Start the broker; the time runs from its process's birth to the answer waited for."""
        running = self._peer.start(self._folder)
        generator = Generator(self._program, running.bootstrap)
        answer = generator.run("ready", **wanted)
        return running, generator, float(answer["serving_unix_ns"]) / 1e9 - running.started_at

    # Loads --------------------------------------------------------------------------------------

    def _loads(self, loads: list[Load]) -> None:
        running, generator, _ = self._start()
        with process.MemoryWatch(running.pid) as memory:
            written = self._warm_up(running, generator, loads)
            for load in loads:
                self._say(load.name)
                self._load(running, generator, load, written[load.name])
        if loads:
            self._record(figures.MEMORY, memory.rss_peak_bytes / _MB)
            self._record(figures.MEMORY_PSS, memory.pss_peak_bytes / _MB)
        if "java" in self._parts:
            self._say("Java perf tools")
            self._java(running, generator)

    def _load(
        self, running: Running, generator: Generator, load: Load, written_bytes_per_second: float
    ) -> None:
        sizes = self._sizes
        self._settle(_SETTLED_BYTES)
        wanted = _TOUCH_MARGIN * written_bytes_per_second * sizes.seconds
        touch_memory(self._folder, int(min(wanted, _TOUCH_MARGIN * sizes.bytes_max)))
        answer = self._on_topic(running, generator, load, sizes.seconds, sizes.bytes_max)
        self._settle(_SETTLED_BYTES)
        self.answers.setdefault(load.name, []).append(answer)
        for key, figure in load.figures.items():
            self._record(figure, measurement(answer, key))

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
        while not is_steady(passes) and len(passes) < self._sizes.warm_passes_max:
            shares = []
            for load in loads:
                burst = self._on_topic(running, generator, load, _BURST_SECONDS, _BURST_BYTES_MAX)
                cost = measurement(burst, figures.CPU_REQ)
                shares.append(cost / first.setdefault(load.name, cost))
                if load.mode == "produce":
                    rate = measurement(burst, figures.MB_S) * _MB
                    fastest[load.name] = max(fastest[load.name], rate)
                self._settle(_DISK_BYTES_MAX)
            passes.append(fmean(shares))
            self._say(f"warm-up {len(passes)}: {passes[-1]:.0%} of the first pass's CPU")
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
        """Wait until deleted topics have left the disk and nothing is on its way to it."""
        deadline = time.monotonic() + _SETTLE_SECONDS_MAX
        while folder_bytes(self._folder) > limit_bytes and time.monotonic() < deadline:
            time.sleep(0.1)
        os.sync()

    def _java(self, running: Running, generator: Generator) -> None:
        topic = "bench-java"
        generator.run("create", topic=topic, partitions=4)
        records = self._sizes.java_records
        produced = java_tools.produce(running.bootstrap, topic, records)
        consumed = java_tools.consume(running.bootstrap, topic, records)
        self.answers.setdefault("java", []).append({"produce": produced, "consume": consumed})
        self._record(figures.JAVA_PRODUCE, produced["mb_per_second"])
        self._record(figures.JAVA_PRODUCE_P99, produced["p99_ms"])
        self._record(figures.JAVA_CONSUME, consumed["mb_per_second"])


def is_steady(costs: list[float]) -> bool:
    """Whether each of the last passes cost about as much as the best before it, or more."""
    if len(costs) <= _STEADY_PASSES:
        return False
    best = min(costs[:-_STEADY_PASSES])
    return all(cost >= best * _STEADY_SHARE for cost in costs[-_STEADY_PASSES:])


def measurement(answer: Answer, key: str) -> float:
    """A figure's value out of the generator's answer and the broker's processor time."""
    if key == figures.CPU_MB:
        return float(answer["broker_cpu_seconds"] * 1e3 / (answer["bytes"] / _MB))
    if key == figures.CPU_REQ:
        return float(answer["broker_cpu_seconds"] * 1e6 / answer["requests"])
    if key in answer:
        return float(answer[key])
    return float(answer["latency_ms"][key])

"""What is measured: every load with its flags, every figure with its unit, direction and target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Target:
    """What Headrace is to reach: a ratio to the peer, or a value of its own."""

    limit: float
    relative: bool = True

    def reached(self, better: Better, own: float, peer: float | None) -> bool | None:
        """Whether it is reached; None when that cannot be said without a peer's value."""
        value = own
        if self.relative:
            if not peer:
                return None
            value = own / peer
        return value >= self.limit if better == "higher" else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    name: str
    title: str
    unit: str
    better: Better
    target: Target | None = None


@dataclass(frozen=True)
class Load:
    """One load of the generator: how its topic is filled, what is sent, what is reported."""

    name: str
    mode: Literal["produce", "fetch"]
    flags: Mapping[str, object]
    figures: Mapping[str, Figure]  # by the key of the measurement that it shows
    partitions: int = 4
    fill_bytes: int = 0


def _rate(name: str, title: str, unit: str, limit: float | None) -> Figure:
    return Figure(name, title, unit, "higher", Target(limit) if limit else None)


def _cost(name: str, title: str, unit: str, limit: float | None = 0.5) -> Figure:
    return Figure(name, title, unit, "lower", Target(limit) if limit else None)


_MB_BATCH = {"records": 1000, "size": 1000, "connections": 4, "in_flight": 5}
_SMALL_BATCH = {"records": 100, "size": 100, "connections": 4, "in_flight": 5}
_SINGLE = {"records": 1, "size": 100, "connections": 16, "in_flight": 5}
_ONE_AT_A_TIME = {"records": 1, "size": 100, "connections": 1, "in_flight": 1}

MB_S = "mb_per_second"
REQ_S = "requests_per_second"
CPU_MB = "cpu_ms_per_mb"
CPU_REQ = "cpu_us_per_request"

LOADS = (
    Load(
        "produce-1mb",
        "produce",
        {**_MB_BATCH, "acks": 1},
        {
            MB_S: _rate("produce-1mb", "produce, 1 MB batches, acks=1", "MB/s", 1.5),
            CPU_MB: _cost("produce-1mb-cpu", "  broker CPU per MB", "ms"),
        },
    ),
    Load(
        "produce-100x100",
        "produce",
        {**_SMALL_BATCH, "acks": 1},
        {
            REQ_S: _rate("produce-100x100", "produce, 100 x 100 B batches, acks=1", "req/s", 2.5),
            CPU_REQ: _cost("produce-100x100-cpu", "  broker CPU per request", "µs"),
        },
    ),
    Load(
        "produce-single",
        "produce",
        {**_SINGLE, "acks": 1},
        {
            REQ_S: _rate(
                "produce-single", "produce, single 100 B, 16 connections, acks=1", "req/s", 1.5
            ),
            CPU_REQ: _cost("produce-single-cpu", "  broker CPU per request", "µs"),
        },
    ),
    Load(
        "latency",
        "produce",
        {**_ONE_AT_A_TIME, "acks": 1},
        {
            "p50": _cost("latency-p50", "one request at a time, acks=1, p50", "ms"),
            "p99": _cost("latency-p99", "  p99", "ms"),
            "p999": _cost("latency-p999", "  p99.9", "ms", None),
            CPU_REQ: _cost("latency-cpu", "  broker CPU per request", "µs"),
        },
    ),
    Load(
        "fetch-1mb",
        "fetch",
        {"connections": 4, "bytes": 1 << 20},
        {
            MB_S: _rate("fetch-1mb", "fetch, 1 MB, 4 connections", "MB/s", 1.3),
            CPU_MB: _cost("fetch-1mb-cpu", "  broker CPU per MB", "ms"),
        },
        fill_bytes=400_000_000,
    ),
    Load(
        "produce-1mb-all",
        "produce",
        {**_MB_BATCH, "acks": -1},
        {
            MB_S: _rate("produce-1mb-all", "produce, 1 MB batches, acks=all", "MB/s", 1.0),
            CPU_MB: _cost("produce-1mb-all-cpu", "  broker CPU per MB", "ms", None),
        },
    ),
    Load(
        "produce-single-all",
        "produce",
        {**_SINGLE, "acks": -1},
        {
            REQ_S: _rate("produce-single-all", "produce, single 100 B, acks=all", "req/s", None),
            CPU_REQ: _cost("produce-single-all-cpu", "  broker CPU per request", "µs", None),
        },
    ),
    Load(
        "produce-idempotent",
        "produce",
        {**_SINGLE, "acks": -1, "idempotent": True},
        {
            REQ_S: _rate(
                "produce-idempotent", "produce, single 100 B, idempotent, acks=all", "req/s", None
            ),
        },
    ),
    Load(
        "latency-all",
        "produce",
        {**_ONE_AT_A_TIME, "acks": -1},
        {
            "p50": _cost("latency-all-p50", "one request at a time, acks=all, p50", "ms", None),
            "p99": _cost("latency-all-p99", "  p99", "ms", None),
        },
    ),
)

JAVA_PRODUCE = _rate(
    "java-produce", "Java ProducerPerformance, 1 KB, its defaults (acks=all)", "MB/s", None
)
JAVA_PRODUCE_P99 = _cost("java-produce-p99", "  p99", "ms", None)
JAVA_CONSUME = _rate("java-consume", "Java ConsumerPerformance", "MB/s", None)


def _own(name: str, title: str, unit: str, limit: float | None) -> Figure:
    return Figure(name, title, unit, "lower", Target(limit, relative=False) if limit else None)


MEMORY = _own("memory", "resident memory, peak under these loads", "MB", 80)
MEMORY_PSS = _own("memory-pss", "  proportional share (PSS)", "MB", None)
START_EMPTY = _own("start-empty", "start to first answer, empty folder", "s", 0.5)
START_FULL = _own("start-1000", "start to 1,000 partitions served, after a clean stop", "s", 2.0)
CREATE_TOPIC = _own("create-1000", "create a topic of 1,000 partitions", "s", None)
IDLE = _own("idle-5000", "resident memory with 5,000 idle connections", "MB", 250)

FIGURES: tuple[Figure, ...] = (
    *(figure for load in LOADS for figure in load.figures.values()),
    MEMORY,
    MEMORY_PSS,
    START_EMPTY,
    START_FULL,
    CREATE_TOPIC,
    IDLE,
    JAVA_PRODUCE,
    JAVA_PRODUCE_P99,
    JAVA_CONSUME,
)

# What `--only` chooses: each is one load or one thing that is done.
PARTS: tuple[str, ...] = (*(load.name for load in LOADS), "starts", "idle", "java")

Values = dict[str, list[float]]  # figure name -> one value per round


@dataclass(frozen=True)
class Row:
    """A figure's medians side by side."""

    figure: Figure
    own: float | None
    peer: float | None

    @property
    def ratio(self) -> float | None:
        """Headrace's value divided by the peer's."""
        return self.own / self.peer if self.own is not None and self.peer else None

    @property
    def advantage(self) -> float | None:
        """How many times better Headrace is, whichever direction is better."""
        if not self.ratio:
            return None
        return self.ratio if self.figure.better == "higher" else 1 / self.ratio

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a target or a value."""
        if self.figure.target is None or self.own is None:
            return None
        return self.figure.target.reached(self.figure.better, self.own, self.peer)


# On one Kafka node acks=1 and acks=all do almost the same work: the rows of a pair should agree.
CONTROLS = (
    ("produce-1mb-cpu", "produce-1mb-all-cpu"),
    ("produce-single-cpu", "produce-single-all-cpu"),
)
CONTROL_SHARE_MAX = 0.25


def doubts(peer: Values) -> list[str]:
    """Why the ratios of a run say little: Kafka's rows that should agree and do not."""
    found = []
    for first, second in CONTROLS:
        if peer.get(first) and peer.get(second):
            ratio = median(peer[first]) / median(peer[second])
            if not 1 - CONTROL_SHARE_MAX <= ratio <= 1 / (1 - CONTROL_SHARE_MAX):
                found.append(
                    f"Kafka's {first} is {ratio:.2f} times its {second}, and they should agree: "
                    "it was not warm or the machine was busy"
                )
    return found


def compare(own: Values, peer: Values) -> list[Row]:
    """One row per measured figure, in the order of `FIGURES`, from the medians of the rounds."""

    def middle(values: Values, figure: Figure) -> float | None:
        return median(values[figure.name]) if values.get(figure.name) else None

    rows = [Row(figure, middle(own, figure), middle(peer, figure)) for figure in FIGURES]
    return [row for row in rows if row.own is not None or row.peer is not None]

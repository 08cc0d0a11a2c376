"""What a bench is made of: loads with their flags, figures with unit, direction and target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    mode: str
    flags: Mapping[str, object]
    figures: Mapping[str, Figure]  # by the key of the measurement that it shows
    partitions: int = 4
    fill_bytes: int = 0


# What a load's figures show: these are computed, any other key is looked up in the answer.
MB_S = "mb_per_second"
REQ_S = "requests_per_second"
CPU_MB = "cpu_ms_per_mb"
CPU_REQ = "cpu_us_per_request"


def rate(name: str, title: str, unit: str, limit: float | None = None) -> Figure:
    """A figure that is better when higher, with a ratio to reach."""
    return Figure(name, title, unit, "higher", Target(limit) if limit else None)


def cost(name: str, title: str, unit: str, limit: float | None = None) -> Figure:
    """A figure that is better when lower, with a ratio to reach."""
    return Figure(name, title, unit, "lower", Target(limit) if limit else None)


def bounded(name: str, title: str, unit: str, limit: float | None = None) -> Figure:
    """A figure that is better when lower, with a value of its own to reach."""
    return Figure(name, title, unit, "lower", Target(limit, relative=False) if limit else None)


MEMORY = bounded("memory", "resident memory, peak under these loads", "MB", 80)
MEMORY_PSS = bounded("memory-pss", "  proportional share (PSS)", "MB")

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


CONTROL_SHARE_MAX = 0.25


def doubts(peer: Values, controls: Iterable[tuple[str, str]]) -> list[str]:
    """Why the ratios of a run say little: the peer's rows that should agree and do not."""
    found = []
    for first, second in controls:
        if peer.get(first) and peer.get(second):
            ratio = median(peer[first]) / median(peer[second])
            if not 1 - CONTROL_SHARE_MAX <= ratio <= 1 / (1 - CONTROL_SHARE_MAX):
                found.append(
                    f"Kafka's {first} is {ratio:.2f} times its {second}, and they should agree: "
                    "it was not warm or the machine was busy"
                )
    return found


def compare(figures: Iterable[Figure], own: Values, peer: Values) -> list[Row]:
    """One row per figure that was measured, in their order, from the medians of the rounds."""

    def middle(values: Values, figure: Figure) -> float | None:
        return median(values[figure.name]) if values.get(figure.name) else None

    rows = [Row(figure, middle(own, figure), middle(peer, figure)) for figure in figures]
    return [row for row in rows if row.own is not None or row.peer is not None]

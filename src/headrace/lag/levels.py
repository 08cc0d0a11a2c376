"""Alarm levels with hysteresis: they rise and fall late, so that they do not flutter; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from headrace.lag.gate import Gate, State
from headrace.lag.places import PartitionLag, Standing


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class Reading(NamedTuple):
    """The lag of a group, or of some of its topics, at one moment."""

    records: int = 0
    behind_ms: int = 0
    is_partial: bool = False
    """Partitions without a leader are missing, so there may be more, but not less."""


def read(partitions: Iterable[PartitionLag], is_counted: Callable[[str], bool]) -> Reading:
    """Records of all partitions together, and the longest time of any of them."""
    counted = [row for row in partitions if is_counted(row.topic)]
    return Reading(
        sum(row.lag or 0 for row in counted),
        max((row.behind_ms or 0 for row in counted), default=0),
        any(row.standing is Standing.AWAY for row in counted),
    )


@dataclass(frozen=True, slots=True)
class Threshold:
    """Where a level begins; what is None does not count."""

    records: int | None = None
    behind_ms: int | None = None

    def is_reached(self, reading: Reading, part: float = 1.0) -> bool:
        """Whether either limit is reached, or this part of it."""
        return (self.records is not None and reading.records >= self.records * part) or (
            self.behind_ms is not None and reading.behind_ms >= self.behind_ms * part
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The thresholds of the levels and how long a reading must stay beyond one to count."""

    warning: Threshold = field(default_factory=Threshold)
    critical: Threshold = field(default_factory=Threshold)
    rise_after_ms: int = 30_000
    fall_after_ms: int = 60_000
    clear: float = 0.5
    """A level is left when the reading is below this part of its threshold."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The state of one group: a gate for each level; the highest that is raised counts."""

    warning: Gate = field(default_factory=Gate)
    critical: Gate = field(default_factory=Gate)

    @property
    def level(self) -> Level:
        if self.critical.is_raised:
            return Level.CRITICAL
        return Level.WARNING if self.warning.is_raised else Level.OK

    def step(self, reading: Reading, ladder: Ladder, now_ms: int) -> Gates:
        """The state after a reading at a monotonic time."""
        return Gates(
            _step(self.warning, ladder.warning, reading, ladder, now_ms),
            _step(self.critical, ladder.critical, reading, ladder, now_ms),
        )

    @classmethod
    def at(cls, level: Level) -> Gates:
        """The state of a group that has been at a level."""
        down, raised = Gate(), Gate(State.RAISED)
        return cls(
            raised if level >= Level.WARNING else down,
            raised if level >= Level.CRITICAL else down,
        )


def _step(gate: Gate, threshold: Threshold, reading: Reading, ladder: Ladder, now_ms: int) -> Gate:
    if gate.is_raised:
        is_below = not reading.is_partial and not threshold.is_reached(reading, ladder.clear)
        return gate.fall(is_below, now_ms, ladder.fall_after_ms)
    return gate.rise(threshold.is_reached(reading), now_ms, ladder.rise_after_ms)

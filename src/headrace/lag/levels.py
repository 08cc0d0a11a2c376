"""Alarm levels with hysteresis: they change only after a while, so they do not flap; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from headrace.lag.group_lag import PartitionLag, Standing


class Level(IntEnum):
    """How far behind a group is."""

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
    """Partitions without a leader are not counted, so the lag may be higher, but not lower."""


def read(partitions: Iterable[PartitionLag], is_counted: Callable[[str], bool]) -> Reading:
    """The records of all counted partitions, and the longest time of any of them."""
    counted = [row for row in partitions if is_counted(row.topic)]
    return Reading(
        sum(row.lag or 0 for row in counted),
        max((row.behind_ms or 0 for row in counted), default=0),
        any(row.standing is Standing.AWAY for row in counted),
    )


@dataclass(frozen=True, slots=True)
class Threshold:
    """Where a level begins; None for no limit."""

    records: int | None = None
    behind_ms: int | None = None

    def is_reached(self, reading: Reading, part: float = 1.0) -> bool:
        """Whether either limit, or this part of it, is reached."""
        return (self.records is not None and reading.records >= self.records * part) or (
            self.behind_ms is not None and reading.behind_ms >= self.behind_ms * part
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPolicy:
    """The thresholds of the levels, and how long a reading must stay beyond one to change it."""

    warning: Threshold = field(default_factory=Threshold)
    critical: Threshold = field(default_factory=Threshold)
    rise_after_ms: int = 30_000
    fall_after_ms: int = 60_000
    clear: float = 0.5
    """A level falls when the reading is below this part of its threshold."""


class State(Enum):
    """The state of one level."""

    DOWN = "down"
    RISING = "rising"
    RAISED = "raised"
    FALLING = "falling"


class Event(Enum):
    """What a reading means for a level, and whether readings have meant that for long enough."""

    REACHED = "the limit is reached"
    REACHED_LONG = "it was reached for rise_after"
    NOT_REACHED = "it is not reached"
    BELOW = "it is below clear x limit"
    BELOW_LONG = "it was below for fall_after"
    NOT_BELOW = "it is not below"


_S, _E = State, Event
TABLE: dict[tuple[State, Event], State] = {
    (_S.DOWN, _E.NOT_REACHED): _S.DOWN,
    (_S.DOWN, _E.REACHED): _S.RISING,
    (_S.DOWN, _E.REACHED_LONG): _S.RAISED,
    (_S.RISING, _E.REACHED): _S.RISING,
    (_S.RISING, _E.REACHED_LONG): _S.RAISED,
    (_S.RISING, _E.NOT_REACHED): _S.DOWN,
    (_S.RAISED, _E.NOT_BELOW): _S.RAISED,
    (_S.RAISED, _E.BELOW): _S.FALLING,
    (_S.RAISED, _E.BELOW_LONG): _S.DOWN,
    (_S.FALLING, _E.BELOW): _S.FALLING,
    (_S.FALLING, _E.BELOW_LONG): _S.DOWN,
    (_S.FALLING, _E.NOT_BELOW): _S.RAISED,
}


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """One level, raised or not, and since when readings ask for the opposite."""

    state: State = State.DOWN
    since_ms: int = 0

    @property
    def is_raised(self) -> bool:
        """Whether the level is raised, even if it is about to fall."""
        return self.state in (State.RAISED, State.FALLING)

    def rise(self, is_reached: bool, now_ms: int, after_ms: int) -> Hysteresis:
        """The state of a level that is not raised, after a reading."""
        if not is_reached:
            return self._to(Event.NOT_REACHED, now_ms)
        is_long = self._has_been(State.RISING, now_ms, after_ms)
        return self._to(Event.REACHED_LONG if is_long else Event.REACHED, now_ms)

    def fall(self, is_below: bool, now_ms: int, after_ms: int) -> Hysteresis:
        """The state of a level that is raised, after a reading."""
        if not is_below:
            return self._to(Event.NOT_BELOW, now_ms)
        is_long = self._has_been(State.FALLING, now_ms, after_ms)
        return self._to(Event.BELOW_LONG if is_long else Event.BELOW, now_ms)

    def _has_been(self, turning: State, now_ms: int, after_ms: int) -> bool:
        since_ms = self.since_ms if self.state is turning else now_ms
        return now_ms - since_ms >= after_ms

    def _to(self, event: Event, now_ms: int) -> Hysteresis:
        state = TABLE[self.state, event]
        if state is self.state:
            return self
        return Hysteresis(state, now_ms if state in (State.RISING, State.FALLING) else 0)


@dataclass(frozen=True, slots=True)
class GroupLevels:
    """The levels of one group; the highest that is raised counts."""

    warning: Hysteresis = field(default_factory=Hysteresis)
    critical: Hysteresis = field(default_factory=Hysteresis)

    @property
    def level(self) -> Level:
        if self.critical.is_raised:
            return Level.CRITICAL
        return Level.WARNING if self.warning.is_raised else Level.OK

    def step(self, reading: Reading, policy: LevelPolicy, now_ms: int) -> GroupLevels:
        """The levels after a reading at a monotonic time."""
        return GroupLevels(
            _step(self.warning, policy.warning, reading, policy, now_ms),
            _step(self.critical, policy.critical, reading, policy, now_ms),
        )

    @classmethod
    def at(cls, level: Level) -> GroupLevels:
        """The levels of a group that has been at a level."""
        down, raised = Hysteresis(), Hysteresis(State.RAISED)
        return cls(
            raised if level >= Level.WARNING else down,
            raised if level >= Level.CRITICAL else down,
        )


def _step(
    hysteresis: Hysteresis, threshold: Threshold, reading: Reading, policy: LevelPolicy, now_ms: int
) -> Hysteresis:
    if hysteresis.is_raised:
        is_below = not reading.is_partial and not threshold.is_reached(reading, policy.clear)
        return hysteresis.fall(is_below, now_ms, policy.fall_after_ms)
    return hysteresis.rise(threshold.is_reached(reading), now_ms, policy.rise_after_ms)

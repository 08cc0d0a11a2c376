"""One level of an alarm: raised or not, and turned only by readings that say so for long enough."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """Where a level stands."""

    DOWN = "down"
    RISING = "rising"
    RAISED = "raised"
    FALLING = "falling"


class Event(Enum):
    """What a reading says of a level, and for how long they have said so without a gap."""

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
class Gate:
    """A level, and since when readings have said that it should turn, while they do."""

    state: State = State.DOWN
    since_ms: int = 0

    @property
    def is_raised(self) -> bool:
        """Whether the level counts."""
        return self.state in (State.RAISED, State.FALLING)

    def rise(self, is_reached: bool, now_ms: int, after_ms: int) -> Gate:
        """The gate of a level that is not raised, after a reading."""
        if not is_reached:
            return self._to(Event.NOT_REACHED, now_ms)
        is_long = self._has_been(State.RISING, now_ms, after_ms)
        return self._to(Event.REACHED_LONG if is_long else Event.REACHED, now_ms)

    def fall(self, is_below: bool, now_ms: int, after_ms: int) -> Gate:
        """The gate of a level that is raised, after a reading."""
        if not is_below:
            return self._to(Event.NOT_BELOW, now_ms)
        is_long = self._has_been(State.FALLING, now_ms, after_ms)
        return self._to(Event.BELOW_LONG if is_long else Event.BELOW, now_ms)

    def _has_been(self, turning: State, now_ms: int, after_ms: int) -> bool:
        since_ms = self.since_ms if self.state is turning else now_ms
        return now_ms - since_ms >= after_ms

    def _to(self, event: Event, now_ms: int) -> Gate:
        state = TABLE[self.state, event]
        if state is self.state:
            return self
        return Gate(state, now_ms if state in (State.RISING, State.FALLING) else 0)

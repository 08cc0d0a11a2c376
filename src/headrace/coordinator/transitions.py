"""Tables of transitions: the state that follows a state and an event."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

StateT = TypeVar("StateT", bound=Enum)
EventT = TypeVar("EventT", bound=Enum)


class IllegalTransition(Exception):
    """An event that the table does not have in this state: a bug, never a client's fault."""


def next_state(
    transitions: Mapping[tuple[StateT, EventT], StateT], state: StateT, event: EventT
) -> StateT:
    """The state after `event`; raises IllegalTransition if there is none."""
    try:
        return transitions[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} in state {state.value}") from None

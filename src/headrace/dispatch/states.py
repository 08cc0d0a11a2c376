"""The states of a partition at its owner and every way from one to another, as one table.

The owner moves a partition only by looking an event up in `TRANSITIONS`; tests enumerate the table
and the docs draw it.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What a node does with a partition."""

    GONE = "not ours"
    READING = "reads what the last owner left"
    WAITING = "waits while another node may run it"
    CHECKING = "looks whether it is settled"
    IDLE = "its token can be taken"
    RUNNING = "its item runs"
    LEFT = "revoked while its item runs"
    FENCED = "asks whether it is still ours"


class Event(Enum):
    """What moves a partition."""

    ASSIGNED = "assigned"
    FOUND = "an unfinished item of the last owner"
    NEXT = "one more of them"
    FREE = "no lease is left"
    SETTLED = "it is settled"
    UNSETTLED = "it is not settled"
    CAUGHT_UP = "all is read: put the token"
    ITEM = "an item with the current fence"
    FINISHED = "the worker ended"
    NEWER = "a newer fence"
    CLAIMED = "it is ours"
    REVOKED = "revoked"


_S, _E = State, Event

TRANSITIONS: dict[tuple[State, Event], State] = {
    (_S.GONE, _E.ASSIGNED): _S.READING,
    (_S.READING, _E.FOUND): _S.WAITING,
    (_S.READING, _E.NEXT): _S.CHECKING,
    (_S.READING, _E.CAUGHT_UP): _S.IDLE,
    (_S.READING, _E.NEWER): _S.FENCED,
    (_S.WAITING, _E.FREE): _S.CHECKING,
    (_S.CHECKING, _E.SETTLED): _S.READING,
    (_S.CHECKING, _E.UNSETTLED): _S.RUNNING,
    (_S.IDLE, _E.ITEM): _S.RUNNING,
    (_S.IDLE, _E.NEWER): _S.FENCED,
    (_S.RUNNING, _E.FINISHED): _S.READING,
    (_S.RUNNING, _E.REVOKED): _S.LEFT,
    (_S.LEFT, _E.FINISHED): _S.GONE,
    # It came back while its item still runs: the item goes on, under the new epoch.
    (_S.LEFT, _E.ASSIGNED): _S.RUNNING,
    (_S.FENCED, _E.CLAIMED): _S.READING,
    (_S.READING, _E.REVOKED): _S.GONE,
    (_S.WAITING, _E.REVOKED): _S.GONE,
    (_S.CHECKING, _E.REVOKED): _S.GONE,
    (_S.IDLE, _E.REVOKED): _S.GONE,
    (_S.FENCED, _E.REVOKED): _S.GONE,
}


class IllegalTransition(Exception):
    """An event that the table does not know in that state: a bug, never a peer's fault."""


def moved(state: State, event: Event) -> State:
    """The state after `event`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} in state {state.name}") from None

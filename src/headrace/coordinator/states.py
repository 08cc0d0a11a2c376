"""The states of a classic group and every way from one to another, as one table.

The code moves a group only by looking an event up in `TRANSITIONS`; tests enumerate the table and
the docs draw it. Two kinds of events exist, and the difference is what makes recovery simple:

- *soft* events change what only lives in memory: who has come to the current round. A crash
  forgets the round, members notice (their heartbeats are refused) and start a new one;
- *stored* events happen only while a record is replayed, never before it is in the log.
"""

from __future__ import annotations

from enum import Enum

from headrace.protocol.errors import ErrorCode


class State(Enum):
    """Where a group is in the round of joining and sharing out; values are Kafka's names."""

    EMPTY = "Empty"  # no members; lives on for its offsets
    PREPARING = "PreparingRebalance"  # waits for members to join
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"  # every member has its assignment
    DEAD = "Dead"  # gone from the log and from memory


class Event(Enum):
    """What moves a group."""

    REBALANCE = "a member came, left, failed or changed"
    JOINED = "the joining is over and somebody is here"
    EMPTIED = "the joining is over and nobody is here"
    ASSIGNED = "the leader's assignment is stored"
    REMOVED = "the group is deleted, or its last offset expired"
    UNLOADED = "this broker no longer coordinates the group"


SOFT_EVENTS = frozenset({Event.REBALANCE, Event.JOINED, Event.UNLOADED})
STORED_EVENTS = frozenset({Event.EMPTIED, Event.ASSIGNED, Event.REMOVED})

TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.EMPTY, Event.REBALANCE): State.PREPARING,
    (State.EMPTY, Event.REMOVED): State.DEAD,
    (State.EMPTY, Event.UNLOADED): State.DEAD,
    (State.PREPARING, Event.JOINED): State.COMPLETING,
    (State.PREPARING, Event.EMPTIED): State.EMPTY,
    (State.PREPARING, Event.UNLOADED): State.DEAD,
    (State.COMPLETING, Event.REBALANCE): State.PREPARING,
    (State.COMPLETING, Event.ASSIGNED): State.STABLE,
    (State.COMPLETING, Event.UNLOADED): State.DEAD,
    (State.STABLE, Event.REBALANCE): State.PREPARING,
    # A static member came back under a new id: the same shares, stored again (KIP-345).
    (State.STABLE, Event.ASSIGNED): State.STABLE,
    (State.STABLE, Event.UNLOADED): State.DEAD,
}

# What a valid member of the current generation is told, by the state of its group.
HEARTBEAT_ANSWERS: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    State.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    # A member may beat between its JoinGroup and its SyncGroup; that is no reason to rejoin.
    State.COMPLETING: ErrorCode.NONE,
    State.STABLE: ErrorCode.NONE,
    State.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
COMMIT_ANSWERS: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.NONE,
    # The previous generation may still commit what it has done before it gives it up.
    State.PREPARING: ErrorCode.NONE,
    State.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    State.STABLE: ErrorCode.NONE,
    State.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class IllegalTransition(Exception):
    """An event that the table does not know in that state: a bug, never a client's fault."""


def moved(state: State, event: Event) -> State:
    """The state after `event`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} in state {state.value}") from None

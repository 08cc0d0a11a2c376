"""The states of a classic group and every way from one to another, as one table.

The code moves a group only by looking an event up in `TRANSITIONS`; tests enumerate the table and
the docs draw it. Two kinds of events exist, and the difference is what makes recovery simple:

- *soft* events change only memory: which members have joined the current rebalance. A crash
  forgets the rebalance; members notice (their heartbeats are refused) and start a new one;
- *stored* events happen only while a record is replayed, never before it is in the log.
"""

from __future__ import annotations

from enum import Enum
from functools import partial

from headrace.coordinator.transitions import next_state
from headrace.protocol.errors import ErrorCode


class State(Enum):
    """The state of a group; values are Kafka's names."""

    EMPTY = "Empty"  # no members; kept for its offsets
    PREPARING = "PreparingRebalance"  # waits for members to join
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"  # every member has its assignment
    DEAD = "Dead"  # gone from the log and from memory


class Event(Enum):
    """What moves a group."""

    REBALANCE = "a member joined, left, failed or changed"
    JOINED = "the join phase is over, with members"
    EMPTIED = "the join phase is over, without members"
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
    # A static member returned under a new id: the same assignments, stored again (KIP-345).
    (State.STABLE, Event.ASSIGNED): State.STABLE,
    (State.STABLE, Event.UNLOADED): State.DEAD,
}

# The error for a heartbeat of a valid member, by the state of its group.
HEARTBEAT_ANSWERS: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    State.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    # A member may send a heartbeat between JoinGroup and SyncGroup; that is no reason to rejoin.
    State.COMPLETING: ErrorCode.NONE,
    State.STABLE: ErrorCode.NONE,
    State.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
COMMIT_ANSWERS: dict[State, ErrorCode] = {
    State.EMPTY: ErrorCode.NONE,
    # The previous generation may still commit its work before it gives up its partitions.
    State.PREPARING: ErrorCode.NONE,
    State.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    State.STABLE: ErrorCode.NONE,
    State.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

# The state after an event.
moved = partial(next_state, TRANSITIONS)

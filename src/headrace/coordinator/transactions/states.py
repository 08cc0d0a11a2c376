"""The states of a transaction and every way from one to another, as one table.

Each transition is one record in `__transaction_state`, made while the record is replayed; none is
only in memory, so a restart finds every transaction in its state. The decision is final when a
`Prepare` state is durable; what follows (markers, then a `Complete` state) may be repeated any
number of times with the same result.
"""

from __future__ import annotations

from enum import Enum
from functools import partial

from headrace.coordinator.transitions import next_state


class State(Enum):
    """The state of a transactional id; values are Kafka's names, in the order of its ids."""

    EMPTY = "Empty"  # a producer is known, nothing is written
    ONGOING = "Ongoing"  # partitions are being written to
    PREPARE_COMMIT = "PrepareCommit"  # decided; markers are being written
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"  # complete; the next transaction may start
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # expired and forgotten
    # Kafka uses it in memory while it fences; here that is one step, so no id is ever in this
    # state, but tools may ask for its name.
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def id(self) -> int:
        """The number of the state in a record."""
        return _IDS[self]


_IDS = {state: number for number, state in enumerate(State)}
STATES_BY_ID = dict(enumerate(State))


class Event(Enum):
    """What moves a transaction."""

    INIT = "a producer asks for its id and epoch"
    ADD = "a partition is added"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts, or is fenced, or its time is up"
    SETTLE = "every marker is durable"
    EXPIRE = "the id was unused for long"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.EMPTY, Event.INIT): State.EMPTY,
    (State.EMPTY, Event.ADD): State.ONGOING,
    # KIP-890: an abort with nothing to abort still raises the epoch.
    (State.EMPTY, Event.ABORT): State.PREPARE_ABORT,
    (State.EMPTY, Event.EXPIRE): State.DEAD,
    (State.ONGOING, Event.ADD): State.ONGOING,
    (State.ONGOING, Event.COMMIT): State.PREPARE_COMMIT,
    (State.ONGOING, Event.ABORT): State.PREPARE_ABORT,
    (State.PREPARE_COMMIT, Event.SETTLE): State.COMPLETE_COMMIT,
    (State.PREPARE_ABORT, Event.SETTLE): State.COMPLETE_ABORT,
    (State.COMPLETE_COMMIT, Event.INIT): State.EMPTY,
    (State.COMPLETE_COMMIT, Event.ADD): State.ONGOING,
    (State.COMPLETE_COMMIT, Event.ABORT): State.PREPARE_ABORT,
    (State.COMPLETE_COMMIT, Event.EXPIRE): State.DEAD,
    (State.COMPLETE_ABORT, Event.INIT): State.EMPTY,
    (State.COMPLETE_ABORT, Event.ADD): State.ONGOING,
    (State.COMPLETE_ABORT, Event.ABORT): State.PREPARE_ABORT,
    (State.COMPLETE_ABORT, Event.EXPIRE): State.DEAD,
}

# Decided and not yet complete: every other request must wait.
SETTLING = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
# Records of the transaction may be in the partitions without a marker after them.
OPEN = frozenset({State.ONGOING, *SETTLING})
# May be removed when the id is unused.
IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

# The state after an event.
moved = partial(next_state, TRANSITIONS)

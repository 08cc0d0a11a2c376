"""The states of a transaction and every way from one to another, as one table.

Each move is one record in `__transaction_state`, made while the record is replayed; nothing of it
lives in memory alone, so a restart finds every transaction where it was. The decision is made when
a `Prepare` state is durable; what follows it (markers, then a `Complete` state) may be repeated
any number of times and comes to the same.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a transactional id is; values are Kafka's names, in the order of its ids."""

    EMPTY = "Empty"  # a producer is known, nothing is written
    ONGOING = "Ongoing"  # partitions are being written to
    PREPARE_COMMIT = "PrepareCommit"  # decided; markers are being written
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"  # over; the next transaction may begin
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"  # expired and forgotten
    # Kafka passes through it in memory when it fences; here that is one step, so nothing is ever
    # in this state, but the name is one that tools may ask for.
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
    ADD = "a partition joins"
    COMMIT = "the producer commits"
    ABORT = "the producer aborts, or is fenced, or its time is up"
    SETTLE = "every marker is durable"
    EXPIRE = "nobody used the id for long"


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

# Decided and not yet over: every other request has to wait.
SETTLING = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
# Records of the transaction may be in the partitions without a marker behind them.
OPEN = frozenset({State.ONGOING, *SETTLING})
# May be forgotten when nobody uses the id.
IDLE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class IllegalTransition(Exception):
    """An event that the table does not know in that state: a bug, never a client's fault."""


def moved(state: State, event: Event) -> State:
    """The state after `event`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} in state {state.value}") from None

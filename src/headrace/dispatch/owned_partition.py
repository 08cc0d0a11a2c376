"""A partition at its owner: its states and transitions as one table, and its data.

The owner machine moves a partition only by looking an event up in `TRANSITIONS`; tests enumerate
the table and the docs draw it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.dispatch.tokens.store import Fence


class State(Enum):
    """What a node does with a partition."""

    GONE = "not ours"
    READING = "reads what the last owner left"
    WAITING = "waits while another node may run it"
    CHECKING = "checks whether it is settled"
    IDLE = "its token can be taken"
    RUNNING = "its job runs"
    LEFT = "revoked while its job runs"
    FENCED = "asks whether it is still ours"


class Event(Enum):
    """What moves a partition to another state."""

    ASSIGNED = "assigned"
    FOUND = "an unfinished job of the last owner"
    NEXT = "one more of them"
    FREE = "no lease is left"
    SETTLED = "it is settled"
    UNSETTLED = "it is not settled"
    CAUGHT_UP = "all is read: put the token"
    JOB = "a job with the current fence"
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
    (_S.IDLE, _E.JOB): _S.RUNNING,
    (_S.IDLE, _E.NEWER): _S.FENCED,
    (_S.RUNNING, _E.FINISHED): _S.READING,
    (_S.RUNNING, _E.REVOKED): _S.LEFT,
    (_S.LEFT, _E.FINISHED): _S.GONE,
    # It came back while its job still runs: the job goes on, under the new epoch.
    (_S.LEFT, _E.ASSIGNED): _S.RUNNING,
    (_S.FENCED, _E.CLAIMED): _S.READING,
    (_S.READING, _E.REVOKED): _S.GONE,
    (_S.WAITING, _E.REVOKED): _S.GONE,
    (_S.CHECKING, _E.REVOKED): _S.GONE,
    (_S.IDLE, _E.REVOKED): _S.GONE,
    (_S.FENCED, _E.REVOKED): _S.GONE,
}


class IllegalTransition(Exception):
    """An event that the table does not have in that state: a bug, never a peer's fault."""


def moved(state: State, event: Event) -> State:
    """The state after `event`."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} in state {state.name}") from None


class Running(NamedTuple):
    """A job that runs, and the fence under which its lease is renewed."""

    offset: int
    job_id: str
    fence: Fence


@dataclass(slots=True)
class OwnedPartition:
    """One partition at this node."""

    number: int
    epoch: int
    position: int  # the next offset to be read
    inherited_end: int  # records below it were sent to an earlier owner
    fence: Fence  # the current one: that of the token, or of the job that came with it
    # -1 at first: the offset at which an owner begins is committed, too, since the next owner
    # would begin at the end of a partition without any commit.
    committed: int = -1
    state: State = State.GONE
    # Offsets of records that are read and not settled.
    open: set[int] = field(default_factory=set)
    inherited: deque[tuple[int, str]] = field(default_factory=deque)
    running: Running | None = None
    renew_at_ms: int = 0
    # The job has ended, but its lease is renewed until its outcome is durable.
    is_ended: bool = False
    # The store knows of this assignment, so it must learn of its end.
    is_stored: bool = False
    # No other node holds a lease from before this assignment.
    is_free: bool = False
    # The offset of the first record that carries a newer fence than ours.
    newer: int | None = None
    # The next change overrides the store.
    is_claimed: bool = False
    # The job that came with the last token: a record with the same two is a copy of its record.
    last: tuple[Fence, str] | None = None
    misses: int = 0

    @property
    def settled_to(self) -> int:
        """The offset below which every record has its outcome."""
        settled = self.position if self.newer is None else min(self.newer, self.position)
        return min(settled, min(self.open)) if self.open else settled

"""A partition at its owner: what it is told, what runs, what is not settled yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.dispatch.fences import Fence
from headrace.dispatch.states import State


class Running(NamedTuple):
    """An item in the worker's hands, and the fence under which its lease is renewed."""

    offset: int
    item_id: str
    fence: Fence


@dataclass(slots=True)
class Partition:
    """One partition at this node."""

    number: int
    epoch: int
    position: int  # the next offset to come
    inherited_end: int  # records below it were sent to an earlier owner
    fence: Fence  # the current one: that of the token, or of the item that came with it
    # -1 at first: where an owner begins is committed, too, since a partition without any commit
    # would be begun at its end by the next owner.
    committed: int = -1
    state: State = State.GONE
    # Offsets of records that are read and not settled.
    open: set[int] = field(default_factory=set)
    inherited: deque[tuple[int, str]] = field(default_factory=deque)
    running: Running | None = None
    renew_at_ms: int = 0
    # It runs no more, but its lease is kept until its outcome is durable.
    is_ended: bool = False
    # The store has heard of this assignment, so it has to hear of its end.
    is_stored: bool = False
    # No other node holds a lease from before this assignment.
    is_free: bool = False
    # The first record that carries a newer fence than ours.
    newer: int | None = None
    # The next change overrules the store.
    is_claimed: bool = False
    # The item that came with the last token: what carries the same is a copy of its record.
    last: tuple[Fence, str] | None = None
    misses: int = 0

    @property
    def settled_to(self) -> int:
        """Every record below this offset has its outcome."""
        settled = self.position if self.newer is None else min(self.newer, self.position)
        return min(settled, min(self.open)) if self.open else settled

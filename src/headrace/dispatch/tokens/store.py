"""Fences, tokens, and the token store as nodes see it.

A partition has one entry in the store: its newest fence, and whether its token is idle (in the
queue), offered to a waiting node, out (taken, or a job of that fence runs, with a lease) or
revoked. A change with an older fence than the entry's does nothing, so late and repeated changes
are harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

TokenState = Literal["idle", "offered", "out", "revoked"]
Verdict = Literal["ok", "repeated", "stale"]


class Fence(NamedTuple):
    """The owner's epoch and its next offset in the partition; a partition's fences only grow.

    Both parts come from Kafka, so a fence does not go back when the token store is emptied.
    """

    epoch: int
    next_offset: int

    def text(self) -> str:
        """The fence as a job's header carries it."""
        return f"{self.epoch}.{self.next_offset}"

    @classmethod
    def parse(cls, text: str) -> Fence | None:
        """The fence in a header; None for text that no node has written."""
        epoch, dot, next_offset = text.partition(".")
        if dot and _is_number(epoch) and _is_number(next_offset):
            return cls(int(epoch), int(next_offset))
        return None


class Token(NamedTuple):
    """The right to send one job to a partition while its fence is the current one."""

    partition: int
    fence: Fence


class Put(NamedTuple):
    """The owner puts the partition's token into the queue, if its fence is newer than the entry's.

    Forced, it overrides what a deleted group or topic of the same name left in the store.
    """

    partition: int
    fence: Fence
    is_forced: bool = False


class Renew(NamedTuple):
    """The node runs a job of this fence: its lease starts again, unless a newer fence is known.

    Forced, it overrides a newer fence too.
    """

    partition: int
    fence: Fence
    is_forced: bool = False


class Revoke(NamedTuple):
    """No job of this fence runs at this node, and none will: token and lease end."""

    partition: int
    fence: Fence


class Return(NamedTuple):
    """The node took this token and has certainly not sent anything with it."""

    partition: int
    fence: Fence


TokenChange = Put | Renew | Revoke | Return


class TokenView(NamedTuple):
    """What the store knows about a partition's token."""

    fence: Fence
    state: TokenState
    node: str  # the node it is offered to, that took it, or that runs its job; else empty
    left_ms: int  # of the offer or the lease, 0 or less once it is over; 0 in other states

    @property
    def is_leased(self) -> bool:
        """Whether a job of this fence may be on its way or running."""
        return self.state in ("offered", "out") and self.left_ms > 0

    def outranks(self, fence: Fence) -> bool:
        """Whether the store would refuse to renew a lease of this fence."""
        return self.fence > fence or (self.fence == fence and self.state == "revoked")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an exchange returns: tokens for this node, and the answers to its queries."""

    granted: list[Token] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)  # one for each change
    views: dict[int, TokenView | None] = field(default_factory=dict)
    incarnation: str = ""  # changes when the store has lost everything it knew
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The whole store of a topic, for people."""

    tokens: dict[int, TokenView]
    waiting: dict[str, int]  # how many tokens each node waits for
    age_ms: int

    def counts(self) -> dict[str, int]:
        """How many partitions are in each state; a lease that is over counts as expired."""
        found = dict.fromkeys(("idle", "offered", "out", "expired", "revoked"), 0)
        for view in self.tokens.values():
            is_expired = view.state in ("offered", "out") and not view.is_leased
            found["expired" if is_expired else view.state] += 1
        return found


class TokenStore(Protocol):
    """Holds the tokens of one topic; every call is one atomic step and may come from any thread.

    It raises only TokensUnavailable. Whether the step was taken is then unknown; repeating it is
    safe.
    """

    def exchange(
        self,
        node: str,
        changes: Sequence[TokenChange] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        query: Sequence[int] = (),
    ) -> Answer:
        """Make changes, collect what is offered, and ask for `want` tokens (None: as before)."""

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        """Wait for tokens offered to this node; returns none when the time is over."""

    def status(self) -> StoreStatus:
        """All tokens, and the nodes that wait for one."""

    def close(self) -> None:
        """Close the connections; a wait in another thread ends."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19

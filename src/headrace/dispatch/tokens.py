"""Tokens of a topic's partitions: what nodes say to the store and what it answers.

A partition has one entry: its newest fence, and whether its token is idle (in the queue), offered
to a waiting node, out (taken, or an item of that fence runs, with a lease), or revoked. A change
with an older fence than the entry's does nothing, so late and repeated messages are harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from headrace.dispatch.fences import Fence, Token

State = Literal["idle", "offered", "out", "revoked"]
Verdict = Literal["ok", "repeated", "stale"]


class Put(NamedTuple):
    """The owner puts the partition's token into the queue, newly or back; only a newer fence is.

    Forced, it overrules what a deleted group or topic of the same name left in the store.
    """

    partition: int
    fence: Fence
    is_forced: bool = False


class Renew(NamedTuple):
    """The node runs an item of this fence: its lease begins anew, unless a newer one is known.

    Forced, it overrules that as well.
    """

    partition: int
    fence: Fence
    is_forced: bool = False


class Revoke(NamedTuple):
    """Nothing of this fence runs here, and nothing will: token and lease end."""

    partition: int
    fence: Fence


class Return(NamedTuple):
    """The node took this token and has surely not sent anything with it."""

    partition: int
    fence: Fence


Change = Put | Renew | Revoke | Return


class Seen(NamedTuple):
    """What the store knows about a partition."""

    fence: Fence
    state: State
    node: str  # who it is offered to, has taken it, or runs its item; else empty
    left_ms: int  # of the offer or the lease; not above 0 when it is over; else 0

    @property
    def is_leased(self) -> bool:
        """Whether an item of this fence may be on its way or running."""
        return self.state in ("offered", "out") and self.left_ms > 0

    def outranks(self, fence: Fence) -> bool:
        """Whether the store would refuse to renew a lease of this fence."""
        return self.fence > fence or (self.fence == fence and self.state == "revoked")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an exchange brings: tokens for this node, and what was asked."""

    granted: list[Token] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)  # one for each change
    seen: dict[int, Seen | None] = field(default_factory=dict)
    born: str = ""  # another one than before: the store has lost all it knew
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The whole store of a topic, for people."""

    tokens: dict[int, Seen]
    waiting: dict[str, int]  # how many tokens each node waits for
    age_ms: int

    def counts(self) -> dict[str, int]:
        """How many partitions are in each state; a lease that is over counts as expired."""
        found = dict.fromkeys(("idle", "offered", "out", "expired", "revoked"), 0)
        for seen in self.tokens.values():
            is_expired = seen.state in ("offered", "out") and not seen.is_leased
            found["expired" if is_expired else seen.state] += 1
        return found


class TokenStore(Protocol):
    """Where nodes meet; every call is one atomic step, from any thread.

    TokensUnavailable is all it raises; whether the step was taken is then not known, and it may
    simply be repeated.
    """

    def exchange(
        self,
        node: str,
        changes: Sequence[Change] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        look: Sequence[int] = (),
    ) -> Answer:
        """Make changes, collect what is offered, and ask for `want` tokens (None: as before)."""

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        """Tokens offered to this node, as soon as there is one; none when the time is over."""

    def status(self) -> Status:
        """All tokens and all that wait."""

    def close(self) -> None:
        """Let the connections go; a wait in another thread ends."""

"""The token table: one topic's tokens and waiting nodes, as a pure machine.

The SQLite store and the simulation run it as it is; the script of the Redis store says the same
in Lua, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.dispatch.fences import Fence, Token
from headrace.dispatch.limits import Limits
from headrace.dispatch.sharing import Policy, Sharing
from headrace.dispatch.tokens import (
    Answer,
    Change,
    Put,
    Renew,
    Revoke,
    Seen,
    State,
    Status,
    Verdict,
)


@dataclass(slots=True)
class Entry:
    """A partition's newest fence and where its token is."""

    fence: Fence
    state: State
    node: str = ""
    until_ms: int = 0


class TokenTable:
    """All tokens of one topic."""

    def __init__(self, born: str, born_ms: int, limits: Limits, policy: Policy = "fair") -> None:
        self.born = born
        self.born_ms = born_ms
        self.limits = limits
        self.policy: Policy = policy
        self.entries: dict[int, Entry] = {}
        # Partitions whose tokens are idle, the longest idle one first.
        self.idle: dict[int, None] = {}
        # Partitions whose tokens are offered, the oldest offer first.
        self.offered: dict[int, None] = {}
        self.sharing = Sharing()

    def exchange(
        self,
        node: str,
        changes: Sequence[Change],
        now_ms: int,
        *,
        want: int | None = None,
        weight: int = 1,
        look: Sequence[int] = (),
    ) -> Answer:
        """One atomic step of a node."""
        verdicts = [self._change(node, change, now_ms) for change in changes]
        granted = self.collect(node, now_ms)
        if want is not None:
            self.sharing.ask(node, want - len(granted), weight)
        self._withdraw_offers(now_ms)
        granted += self._share(node, now_ms)
        return Answer(
            granted,
            verdicts,
            {partition: self._seen(partition, now_ms) for partition in look},
            self.born,
            now_ms - self.born_ms,
        )

    def collect(self, node: str, now_ms: int) -> list[Token]:
        """Let a node have what is offered to it."""
        mine = [p for p in self.offered if self.entries[p].node == node]
        return [self._lend(partition, node, now_ms) for partition in mine]

    def status(self, now_ms: int) -> Status:
        """Everything, for people."""
        seen = {p: self._seen(p, now_ms) for p in sorted(self.entries)}
        waiting = {node: waiter.want for node, waiter in self.sharing.waiters.items()}
        return Status({p: s for p, s in seen.items() if s}, waiting, now_ms - self.born_ms)

    def _change(self, node: str, change: Change, now_ms: int) -> Verdict:
        partition, fence = change.partition, change.fence
        entry = self.entries.get(partition)
        if isinstance(change, Put):
            if entry and fence <= entry.fence and not change.is_forced:
                return "repeated" if fence == entry.fence else "stale"
            self._place(partition, Entry(fence, "idle"))
            self.idle[partition] = None
        elif isinstance(change, Renew):
            is_over = entry and (fence, entry.state) == (entry.fence, "revoked")
            if entry and (is_over or fence < entry.fence) and not change.is_forced:
                return "stale"
            self._place(partition, Entry(fence, "out", node, now_ms + self.limits.lease_ms))
        elif isinstance(change, Revoke):
            if entry and fence < entry.fence:
                return "stale"
            self._place(partition, Entry(fence, "revoked"))
        else:
            if not entry or (fence, "out", node) != (entry.fence, entry.state, entry.node):
                return "stale"
            self._place(partition, Entry(fence, "idle"))
            self.idle[partition] = None
        return "ok"

    def _place(self, partition: int, entry: Entry) -> None:
        self.idle.pop(partition, None)
        self.offered.pop(partition, None)
        self.entries[partition] = entry

    def _lend(self, partition: int, node: str, now_ms: int) -> Token:
        fence = self.entries[partition].fence
        self._place(partition, Entry(fence, "out", node, now_ms + self.limits.lease_ms))
        return Token(partition, fence)

    def _withdraw_offers(self, now_ms: int) -> None:
        """Nobody has collected them, so nothing can have been sent with them."""
        for partition in list(self.offered):
            entry = self.entries[partition]
            if entry.until_ms > now_ms:
                break
            self.sharing.ask(entry.node, 0, 1)
            self._place(partition, Entry(entry.fence, "idle"))
            self.idle[partition] = None

    def _share(self, node: str, now_ms: int) -> list[Token]:
        granted: list[Token] = []
        while self.idle and (served := self.sharing.next(self.policy)) is not None:
            partition = next(iter(self.idle))
            if served == node:
                granted.append(self._lend(partition, node, now_ms))
            else:
                fence = self.entries[partition].fence
                until_ms = now_ms + self.limits.offer_ms
                self._place(partition, Entry(fence, "offered", served, until_ms))
                self.offered[partition] = None
        return granted

    def _seen(self, partition: int, now_ms: int) -> Seen | None:
        entry = self.entries.get(partition)
        if entry is None:
            return None
        left_ms = entry.until_ms - now_ms if entry.state in ("offered", "out") else 0
        return Seen(entry.fence, entry.state, entry.node, left_ms)

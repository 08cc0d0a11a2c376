"""The token table: one topic's tokens and waiting nodes, as a pure machine.

The SQLite store and the simulation run it as it is; the script of the Redis store does the same
in Lua, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.scheduler import Policy, Scheduler
from headrace.dispatch.tokens.store import (
    Answer,
    Fence,
    Put,
    Renew,
    Revoke,
    StoreStatus,
    Token,
    TokenChange,
    TokenState,
    TokenView,
    Verdict,
)


@dataclass(slots=True)
class TokenEntry:
    """A partition's newest fence and where its token is."""

    fence: Fence
    state: TokenState
    node: str = ""
    until_ms: int = 0


class TokenTable:
    """All tokens of one topic, and the nodes that wait for one."""

    def __init__(
        self, incarnation: str, created_ms: int, limits: DispatchLimits, policy: Policy = "fair"
    ) -> None:
        self.incarnation = incarnation
        self.created_ms = created_ms
        self.limits = limits
        self.policy: Policy = policy
        self.entries: dict[int, TokenEntry] = {}
        # Partitions whose tokens are idle, the longest idle first.
        self.idle: dict[int, None] = {}
        # Partitions whose tokens are offered, the oldest offer first.
        self.offered: dict[int, None] = {}
        self.scheduler = Scheduler()

    def exchange(
        self,
        node: str,
        changes: Sequence[TokenChange],
        now_ms: int,
        *,
        want: int | None = None,
        weight: int = 1,
        query: Sequence[int] = (),
    ) -> Answer:
        """Take one atomic step for a node; see TokenStore."""
        verdicts = [self._change(node, change, now_ms) for change in changes]
        granted = self.collect(node, now_ms)
        if want is not None:
            self.scheduler.ask(node, want - len(granted), weight)
        self._withdraw_offers(now_ms)
        granted += self._share(node, now_ms)
        return Answer(
            granted,
            verdicts,
            {partition: self._view(partition, now_ms) for partition in query},
            self.incarnation,
            now_ms - self.created_ms,
        )

    def collect(self, node: str, now_ms: int) -> list[Token]:
        """Give a node the tokens that are offered to it."""
        mine = [p for p in self.offered if self.entries[p].node == node]
        return [self._lend(partition, node, now_ms) for partition in mine]

    def status(self, now_ms: int) -> StoreStatus:
        """All tokens and waiting nodes, for people."""
        views = {p: self._view(p, now_ms) for p in sorted(self.entries)}
        waiting = {node: waiter.want for node, waiter in self.scheduler.waiters.items()}
        return StoreStatus(
            {p: view for p, view in views.items() if view}, waiting, now_ms - self.created_ms
        )

    def _change(self, node: str, change: TokenChange, now_ms: int) -> Verdict:
        partition, fence = change.partition, change.fence
        entry = self.entries.get(partition)
        if isinstance(change, Put):
            if entry and fence <= entry.fence and not change.is_forced:
                return "repeated" if fence == entry.fence else "stale"
            self._place(partition, TokenEntry(fence, "idle"))
            self.idle[partition] = None
        elif isinstance(change, Renew):
            is_over = entry and (fence, entry.state) == (entry.fence, "revoked")
            if entry and (is_over or fence < entry.fence) and not change.is_forced:
                return "stale"
            self._place(partition, TokenEntry(fence, "out", node, now_ms + self.limits.lease_ms))
        elif isinstance(change, Revoke):
            if entry and fence < entry.fence:
                return "stale"
            self._place(partition, TokenEntry(fence, "revoked"))
        else:
            if not entry or (fence, "out", node) != (entry.fence, entry.state, entry.node):
                return "stale"
            self._place(partition, TokenEntry(fence, "idle"))
            self.idle[partition] = None
        return "ok"

    def _place(self, partition: int, entry: TokenEntry) -> None:
        self.idle.pop(partition, None)
        self.offered.pop(partition, None)
        self.entries[partition] = entry

    def _lend(self, partition: int, node: str, now_ms: int) -> Token:
        fence = self.entries[partition].fence
        self._place(partition, TokenEntry(fence, "out", node, now_ms + self.limits.lease_ms))
        return Token(partition, fence)

    def _withdraw_offers(self, now_ms: int) -> None:
        """Take back offers that ran out: nothing was sent with a token that was not collected."""
        for partition in list(self.offered):
            entry = self.entries[partition]
            if entry.until_ms > now_ms:
                break
            self.scheduler.ask(entry.node, 0, 1)
            self._place(partition, TokenEntry(entry.fence, "idle"))
            self.idle[partition] = None

    def _share(self, node: str, now_ms: int) -> list[Token]:
        granted: list[Token] = []
        while self.idle and (served := self.scheduler.next(self.policy)) is not None:
            partition = next(iter(self.idle))
            if served == node:
                granted.append(self._lend(partition, node, now_ms))
            else:
                fence = self.entries[partition].fence
                until_ms = now_ms + self.limits.offer_ms
                self._place(partition, TokenEntry(fence, "offered", served, until_ms))
                self.offered[partition] = None
        return granted

    def _view(self, partition: int, now_ms: int) -> TokenView | None:
        entry = self.entries.get(partition)
        if entry is None:
            return None
        left_ms = entry.until_ms - now_ms if entry.state in ("offered", "out") else 0
        return TokenView(entry.fence, entry.state, entry.node, left_ms)

"""Which node gets the next token: the waiting nodes and the policies that order them; pure.

`fair` is stride scheduling. A waiting node has a pass; the smallest pass gets the next token, and
of equal ones the node that was served longest ago. A token moves the node's pass on by one stride,
`STRIDE / weight`. A node that starts to wait begins one stride behind the last token's pass, so
it gains nothing by having been away. Between two tokens of node i (or since it began to wait)
another node j therefore gets at most `ceil(weight_j / weight_i)`: with equal weights no node waits
longer than one turn of every other node. `race` serves nodes in the order in which they asked, each
until it has enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Policy = Literal["fair", "race"]
POLICIES: tuple[Policy, ...] = ("fair", "race")

WEIGHT_MAX = 16
# Divisible by every weight up to the limit, so that strides are not rounded.
STRIDE = 720_720


@dataclass(slots=True)
class Waiter:
    """A node that has jobs and no tokens for them."""

    want: int
    weight: int
    pass_: int
    turn: int  # when it began to wait or was served last, counted in asks and tokens


@dataclass(slots=True)
class Scheduler:
    """The nodes that wait for tokens."""

    waiters: dict[str, Waiter] = field(default_factory=dict)
    last_pass: int = 0
    turns: int = 0

    def ask(self, node: str, want: int, weight: int) -> None:
        """Let a node wait for this many tokens; 0 ends its waiting."""
        if want < 1:
            self.waiters.pop(node, None)
            return
        waiter = self.waiters.get(node)
        if waiter is not None:
            waiter.want, waiter.weight = want, weight
            return
        if not self.waiters:
            self.last_pass = 0
        self.turns += 1
        pass_ = self.last_pass + STRIDE // weight
        self.waiters[node] = Waiter(want, weight, pass_, self.turns)

    def next(self, policy: Policy) -> str | None:
        """Serve the next node and return its name; None when no node waits."""
        if not self.waiters:
            return None
        if policy == "fair":
            node = min(self.waiters, key=lambda name: self._fair_rank(name))
        else:
            node = min(self.waiters, key=lambda name: self.waiters[name].turn)
        waiter = self.waiters[node]
        if policy == "fair":
            self.turns += 1
            waiter.turn = self.turns
            self.last_pass = waiter.pass_
            waiter.pass_ += STRIDE // waiter.weight
        waiter.want -= 1
        if waiter.want < 1:
            del self.waiters[node]
        return node

    def _fair_rank(self, node: str) -> tuple[int, int]:
        waiter = self.waiters[node]
        return waiter.pass_, waiter.turn

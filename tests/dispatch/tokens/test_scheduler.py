"""Fair turns: no node waits longer than the stated number of turns, and no token idles."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.scheduler import WEIGHT_MAX, Scheduler
from headrace.dispatch.tokens.store import Fence, Put, Token
from headrace.dispatch.tokens.token_table import TokenTable

NAMES = st.sampled_from("abcdef")


class Turns(RuleBasedStateMachine):
    """Nodes ask, leave, come back under the same or another name, and are served."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.weights: dict[str, int] = {}
        # For every waiting node: what each other one got since it began to wait or was served.
        self.got: dict[str, Counter[str]] = {}

    @rule(name=NAMES, want=st.integers(0, 5), weight=st.integers(1, WEIGHT_MAX))
    def ask(self, name: str, want: int, weight: int) -> None:
        weight = self.weights.setdefault(name, weight)
        self.scheduler.ask(name, want, weight)
        if want:
            self.got.setdefault(name, Counter())
        else:
            self.got.pop(name, None)

    @rule(times=st.integers(1, 30))
    def serve(self, times: int) -> None:
        for _ in range(times):
            waiting = set(self.scheduler.waiters)
            served = self.scheduler.next("fair")
            # Work-conserving: while a node waits, a node is served.
            assert (served is not None) == bool(waiting)
            if served is None:
                return
            assert served in waiting
            self.got.pop(served)
            if served in self.scheduler.waiters:
                self.got[served] = Counter()
            for name, others in self.got.items():
                if name != served:
                    others[served] += 1
                    bound = -(-self.weights[served] // self.weights[name])
                    assert others[served] <= bound, (name, served)

    @invariant()
    def everyone_who_waits_is_known(self) -> None:
        assert set(self.got) == set(self.scheduler.waiters)


TestTurns = Turns.TestCase


def test_newcomers_cannot_hold_a_waiting_node_back() -> None:
    sharing = Scheduler()
    sharing.ask("busy", 1_000, 1)
    sharing.next("fair")
    sharing.ask("patient", 1, 1)
    for number in range(100):
        # A stream of names that were never seen before.
        sharing.ask(f"new {number}", 1, 1)
    assert "patient" in [sharing.next("fair"), sharing.next("fair")]


def test_a_race_serves_who_asked_first_until_it_has_enough() -> None:
    sharing = Scheduler()
    sharing.ask("first", 3, 1)
    sharing.ask("second", 1, 16)
    assert [sharing.next("race") for _ in range(5)] == ["first"] * 3 + ["second", None]


@given(st.lists(st.tuples(NAMES, st.integers(0, 3), st.integers(0, 4)), max_size=40))
def test_no_token_idles_while_anyone_waits(steps: list[tuple[str, int, int]]) -> None:
    table = TokenTable("", 0, DispatchLimits())
    offset = 0
    for node, want, puts in steps:
        changes = [Put(partition, Fence(1, offset + partition)) for partition in range(puts)]
        offset += 10
        table.exchange(node, changes, 0, want=want)
        assert not (table.idle and table.scheduler.waiters)


def test_a_slow_node_gets_its_share_beside_a_fast_one() -> None:
    """The fast node asks ten times as often and always has a hundred times as much waiting."""
    table = TokenTable("", 0, DispatchLimits())
    got: Counter[str] = Counter()
    out: list[Token] = []
    table.exchange("owner", [Put(partition, Fence(1, 0)) for partition in range(4)], 0)
    for turn in range(2_000):
        back = [Put(p, Fence(1, fence.next_offset + 1)) for p, fence in out]
        fast = table.exchange("fast", back, 0, want=500).granted
        slow = table.exchange("slow", [], 0, want=5 if turn % 10 == 0 else None).granted
        got.update(fast=len(fast), slow=len(slow))
        out = fast + slow
    # The slow one gets all it asks for, and at once: every second token while it waits.
    assert got["slow"] == 5 * 200
    assert got["fast"] == 4 * 2_000 - got["slow"]

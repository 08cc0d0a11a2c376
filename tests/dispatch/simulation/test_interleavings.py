"""A rule-based model: hypothesis chooses which message is carried next and what goes wrong."""

from __future__ import annotations

from heapq import heapify

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.dispatch.simulation.stage import Play


class Interleavings(RuleBasedStateMachine):
    """Any order of all that is on its way; in the end, everything heals."""

    play: Play

    @initialize(seed=st.integers(0, 2**32), nodes=st.integers(1, 3))
    def begin(self, seed: int, nodes: int) -> None:
        self.play = Play(seed)
        # Messages are carried in any order here, so a lease may be late by any time.
        self.play.world.is_gentle = False
        for number in range(nodes):
            self.play.start(f"node {number}")
        self.submitted = 0

    @rule()
    def submit(self) -> None:
        self.submitted += 1
        self.play.submit(f"job {self.submitted}")

    @rule(which=st.integers(0, 30))
    def carry_one(self, which: int) -> None:
        agenda = self.play.world.agenda
        if agenda:
            _, _, deed, args = agenda.pop(which % len(agenda))
            heapify(agenda)
            deed(*args)

    @rule(ms=st.integers(1, 1_500))
    def let_time_pass(self, ms: int) -> None:
        self.play.world.run_until(self.play.world.now_ms + ms)

    @rule()
    def crash(self) -> None:
        self.play.crash()

    @rule()
    def freeze(self) -> None:
        self.play.freeze()

    @rule()
    def leave(self) -> None:
        self.play.leave()

    @rule()
    def rebalance(self) -> None:
        self.play.group.rebalance()

    @rule()
    def flush(self) -> None:
        self.play.flush()

    @rule()
    def save(self) -> None:
        self.play.world.save_store()

    @rule()
    def fail_over(self) -> None:
        self.play.fail_over()

    @rule()
    def null(self) -> None:
        self.play.null()

    @precondition(lambda self: len(self.play.world.logs) < 6)
    @rule()
    def grow(self) -> None:
        self.play.grow()

    def teardown(self) -> None:
        if hasattr(self, "play"):
            self.play.end_well()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def test_a_node_that_wakes_at_the_end_of_its_session_stays_in_the_group() -> None:
    found = Interleavings()
    found.begin(seed=0, nodes=1)
    found.grow()
    found.grow()
    found.let_time_pass(ms=23)
    found.freeze()
    found.rebalance()
    found.let_time_pass(ms=301)
    found.null()
    found.carry_one(which=1)
    found.teardown()

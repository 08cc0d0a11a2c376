"""The safe prefix of a partition, against a model that keeps everything."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.handlers import progress
from headrace.handlers.progress import Progress


class ProgressMachine(RuleBasedStateMachine):
    """Arrivals with holes between their offsets, finished in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.offsets: dict[int, int] = {}
        self.finished: set[int] = set()
        self.next_offset = -1

    @rule(holes=st.lists(st.integers(0, 3), min_size=1, max_size=12))
    def arrive(self, holes: list[int]) -> None:
        for hole in holes:
            offset = max(self.next_offset, 0) + hole
            self.offsets[self.progress.arrive(offset)] = offset
            self.next_offset = offset + 1

    @precondition(lambda self: len(self.finished) < len(self.offsets))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        left = sorted(self.offsets.keys() - self.finished)
        sequence = data.draw(st.sampled_from(left))
        self.progress.finish(sequence)
        self.finished.add(sequence)

    @precondition(lambda self: bool(self.finished))
    @rule(data=st.data())
    def finish_again(self, data: st.DataObject) -> None:
        self.progress.finish(data.draw(st.sampled_from(sorted(self.finished))))

    @invariant()
    def commits_up_to_the_lowest_unfinished(self) -> None:
        left = [self.offsets[sequence] for sequence in self.offsets.keys() - self.finished]
        assert self.progress.safe_offset() == (min(left) if left else self.next_offset)

    @invariant()
    def counts_from_the_lowest_unfinished(self) -> None:
        left = self.offsets.keys() - self.finished
        assert self.progress.unsafe == (len(self.offsets) - min(left) if left else 0)


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_an_offset_that_goes_back_is_refused() -> None:
    tracker = Progress()
    tracker.arrive(7)
    with pytest.raises(ValueError, match="offset 7 arrived after 7"):
        tracker.arrive(7)


def test_memory_is_given_back_while_one_message_stays_unfinished_for_a_while() -> None:
    tracker = Progress()
    first = tracker.arrive(0)
    for offset in range(1, 3 * progress.TRIM_ENTRIES):
        tracker.finish(tracker.arrive(offset))
    assert tracker.safe_offset() == 0
    tracker.finish(first)
    assert tracker.safe_offset() == 3 * progress.TRIM_ENTRIES
    assert tracker.unsafe == 0
    tracker.finish(first)
    assert tracker.unsafe == 0

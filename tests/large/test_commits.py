"""How far a handler commits while large messages are under way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.handlers.progress import NO_FLOOR, Progress


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
def test_nothing_is_committed_beyond_the_first_chunk_of_what_is_not_done(
    spans: list[int], data: st.DataObject
) -> None:
    """Each message ends at its own offset and begins up to five records before."""
    progress = Progress()
    firsts: dict[int, int] = {}
    for last, span in enumerate(spans):
        sequence = progress.arrive(last)
        firsts[sequence] = max(0, last - span)
        if span:
            progress.keep_from(firsts[sequence], last)
    for sequence in data.draw(st.permutations(sorted(firsts))):
        assert progress.safe_offset() <= min(firsts.values())
        progress.finish(sequence)
        del firsts[sequence]
    assert progress.safe_offset() == len(spans)


def test_the_floor_holds_while_a_message_is_not_whole() -> None:
    progress = Progress()
    progress.finish(progress.arrive(3))
    progress.floor = 1
    assert progress.safe_offset() == 1
    progress.floor = NO_FLOOR
    assert progress.safe_offset() == 4


def test_chunks_that_lead_to_nothing_are_passed_by() -> None:
    progress = Progress()
    unfinished = progress.arrive(3)
    progress.pass_by(9)
    assert progress.safe_offset() == 3
    progress.finish(unfinished)
    assert progress.safe_offset() == 10
    progress.pass_by(5)
    assert progress.safe_offset() == 10

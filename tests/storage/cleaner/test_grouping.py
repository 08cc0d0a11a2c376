"""How segments are grouped for cleaning."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.storage.cleaner.clean import (
    RELATIVE_OFFSET_MAX,
    group_segments,
)
from headrace.storage.cleaner.options import SegmentFacts


def segment(
    base: int, next_offset: int, log: int = 10, index: int = 1, time: int = 1
) -> SegmentFacts:
    return SegmentFacts(base, next_offset, log, index, time)


def bases(groups: list[list[SegmentFacts]]) -> list[list[int]]:
    return [[facts.base_offset for facts in group] for group in groups]


def test_neighbours_share_a_group_up_to_the_segment_size() -> None:
    segments = [segment(base, base + 10, log=40) for base in range(0, 50, 10)]
    groups = group_segments(segments, segment_bytes=80, index_bytes=100)
    assert bases(groups) == [[0, 10], [20, 30], [40]]


def test_either_index_closes_a_group() -> None:
    by_index = [segment(base, base + 10, index=6) for base in (0, 10)]
    by_time = [segment(base, base + 10, time=6) for base in (0, 10)]
    assert bases(group_segments(by_index, segment_bytes=99, index_bytes=10)) == [[0], [10]]
    assert bases(group_segments(by_time, segment_bytes=99, index_bytes=10)) == [[0], [10]]


def test_offsets_beyond_31_bits_of_the_base_start_a_new_group() -> None:
    far = RELATIVE_OFFSET_MAX
    fits = [segment(0, 10), segment(10, far + 1)]
    over = [segment(0, 10), segment(10, far + 2)]
    assert bases(group_segments(fits, segment_bytes=99, index_bytes=10)) == [[0, 10]]
    assert bases(group_segments(over, segment_bytes=99, index_bytes=10)) == [[0], [10]]


def test_empty_segments_join_whatever_their_offsets() -> None:
    segments = [segment(0, 10), segment(2**33, 2**33, log=0), segment(2**34, 2**34, log=0)]
    assert len(group_segments(segments, segment_bytes=99, index_bytes=10)) == 1


def test_a_segment_larger_than_the_limit_stands_alone() -> None:
    segments = [segment(0, 10, log=500), segment(10, 20), segment(20, 30)]
    assert bases(group_segments(segments, segment_bytes=99, index_bytes=10)) == [[0], [10, 20]]


def test_no_segments_no_groups() -> None:
    assert group_segments([], segment_bytes=1, index_bytes=1) == []


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(0, 12))),
)
def test_groups_keep_every_segment_in_order_and_within_limits(
    sizes: list[tuple[int, int, int]],
) -> None:
    segments = [segment(i, i + 1, *size) for i, size in enumerate(sizes)]
    groups = group_segments(segments, segment_bytes=100, index_bytes=10)
    assert [facts for group in groups for facts in group] == segments
    for group in groups:
        if len(group) > 1:
            assert sum(facts.log_bytes for facts in group) <= 100
            assert sum(facts.index_bytes for facts in group) <= 10
            assert sum(facts.time_index_bytes for facts in group) <= 10
    # No two neighbouring groups could have been one: the first of the next did not fit.
    for left, right in pairwise(groups):
        joined = [*left, right[0]]
        assert (
            sum(facts.log_bytes for facts in joined) > 100
            or sum(facts.index_bytes for facts in joined) > 10
            or sum(facts.time_index_bytes for facts in joined) > 10
        )

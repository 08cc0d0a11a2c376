"""When an offset was written, reckoned from looks at a partition's end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.lag.ages import Timeline

# Steps of the end and of time between looks.
STEPS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1000)), min_size=1, max_size=80)


def test_a_time_lies_on_the_line_between_two_looks() -> None:
    timeline = Timeline()
    timeline.see(100, 10_000)
    timeline.see(200, 20_000)
    assert timeline.written_ms(99) is None
    assert timeline.written_ms(100) == 10_100
    assert timeline.written_ms(149) == 15_000
    assert timeline.written_ms(199) == 20_000
    assert timeline.written_ms(200) is None


def test_looks_that_lie_far_apart_say_nothing() -> None:
    timeline = Timeline(gap_ms_max=1000)
    timeline.see(0, 0)
    timeline.see(10, 1001)
    assert timeline.written_ms(5) is None


def test_an_end_that_stands_still_makes_what_follows_young() -> None:
    timeline = Timeline()
    for at_ms in range(0, 50_000, 1000):
        timeline.see(7, at_ms)
    timeline.see(8, 50_000)
    assert timeline.written_ms(7) == 50_000
    assert len(list(timeline)) == 3


def test_a_new_log_makes_the_old_one_forgotten() -> None:
    timeline = Timeline()
    timeline.see(0, 0)
    timeline.see(100, 1000)
    timeline.see(3, 2000)
    assert timeline.written_ms(50) is None
    assert list(timeline) == [(3, 2000)]


@given(STEPS, st.integers(4, 16))
def test_times_grow_with_offsets_and_lie_between_the_looks_around_them(
    steps: list[tuple[int, int]], points_max: int
) -> None:
    timeline = Timeline(points_max, gap_ms_max=10**9)
    end = at_ms = 0
    looks = []
    for records, pause_ms in steps:
        end, at_ms = end + records, at_ms + pause_ms
        timeline.see(end, at_ms)
        looks.append((end, at_ms))
    assert len(list(timeline)) <= points_max
    times = [timeline.written_ms(offset) for offset in range(end + 1)]
    known = [time_ms for time_ms in times if time_ms is not None]
    assert known == sorted(known)
    for offset, time_ms in enumerate(times):
        if time_ms is not None:
            # It was there at the latest when a look saw it.
            seen_ms = min(at_ms for end, at_ms in looks if end > offset)
            kept = list(timeline)
            first_kept_ms = min(at_ms for end, at_ms in kept if end > offset)
            unseen_ms = max(at_ms for end, at_ms in kept if end <= offset)
            assert unseen_ms <= time_ms <= first_kept_ms
            assert first_kept_ms >= seen_ms

"""Levels rise and fall late, and do not flutter."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.lag.group_lag import PartitionLag, Standing
from headrace.lag.levels import GroupLevels, Level, LevelPolicy, Reading, Threshold, read

POLICY = LevelPolicy(
    warning=Threshold(records=100),
    critical=Threshold(records=1000, behind_ms=60_000),
    rise_after_ms=3_000,
    fall_after_ms=5_000,
    clear=0.5,
)
LOOKS = st.lists(
    st.tuples(st.integers(1, 3_000), st.integers(0, 2_000), st.booleans()), max_size=60
)


def walk(looks: list[tuple[int, Reading]], policy: LevelPolicy = POLICY) -> list[Level]:
    state, levels = GroupLevels(), []
    for now_ms, reading in looks:
        state = state.step(reading, policy, now_ms)
        levels.append(state.level)
    return levels


def seconds(*records: int) -> list[tuple[int, Reading]]:
    """A look a second."""
    return [(1000 * number, Reading(count)) for number, count in enumerate(records)]


def test_a_level_rises_when_it_was_reached_for_long_enough() -> None:
    assert walk(seconds(100, 100, 100, 100)) == [Level.OK] * 3 + [Level.WARNING]


def test_a_moment_below_the_threshold_begins_anew() -> None:
    assert walk(seconds(100, 100, 99, 100, 100, 100)) == [Level.OK] * 6


def test_both_levels_may_be_reached_at_once() -> None:
    assert walk(seconds(*[1000] * 4))[-1] is Level.CRITICAL


def test_either_limit_counts() -> None:
    looks = [(at_ms, Reading(5, 60_000)) for at_ms in range(0, 4_000, 1000)]
    assert walk(looks)[-1] is Level.CRITICAL


def test_a_level_stays_between_its_threshold_and_the_part_where_it_is_left() -> None:
    assert walk(seconds(*[100] * 4, *[50] * 20))[-1] is Level.WARNING
    assert walk(seconds(*[100] * 4, *[49] * 5))[-1] is Level.WARNING
    assert walk(seconds(*[100] * 4, *[49] * 6))[-1] is Level.OK


def test_critical_falls_to_a_warning_first() -> None:
    assert walk(seconds(*[1000] * 4, *[100] * 6))[-1] is Level.WARNING


def test_no_hold_is_no_wait() -> None:
    levels = LevelPolicy(warning=Threshold(records=1), rise_after_ms=0, fall_after_ms=0, clear=1.0)
    assert walk(seconds(0, 1, 0, 1), levels) == [Level.OK, Level.WARNING] * 2


def test_what_is_seen_in_part_may_raise_but_not_clear() -> None:
    part = Reading(0, 0, is_partial=True)
    raised = [(1000 * number, Reading(100)) for number in range(4)]
    assert walk([*raised, *((1000 * number, part) for number in range(4, 60))])[-1] is Level.WARNING


@given(LOOKS)
def test_a_change_needs_its_reason_for_the_whole_time(
    steps: list[tuple[int, int, bool]],
) -> None:
    now_ms, looks = 0, []
    for pause_ms, records, is_partial in steps:
        now_ms += pause_ms
        looks.append((now_ms, Reading(records, is_partial=is_partial)))
    levels = walk(looks)
    before = Level.OK
    for index, level in enumerate(levels):
        at_ms = looks[index][0]
        if level > before:
            limit = 100 if level is Level.WARNING else 1000
            assert all(
                reading.records >= limit
                for look_ms, reading in looks[: index + 1]
                if look_ms > at_ms - POLICY.rise_after_ms
            )
        elif level < before:
            limit = 1000 if before is Level.CRITICAL else 100
            assert all(
                reading.records < limit * POLICY.clear and not reading.is_partial
                for look_ms, reading in looks[: index + 1]
                if look_ms > at_ms - POLICY.fall_after_ms
            )
        before = level
    changes = [
        looks[index][0]
        for index in range(1, len(levels))
        if (levels[index] is Level.OK) != (levels[index - 1] is Level.OK)
    ]
    # So it never flutters faster than that.
    assert all(
        later - earlier >= min(POLICY.rise_after_ms, POLICY.fall_after_ms)
        for earlier, later in pairwise(changes)
    )


@given(LOOKS)
def test_more_lag_is_never_a_lower_level(steps: list[tuple[int, int, bool]]) -> None:
    now_ms, less, more = 0, [], []
    for pause_ms, records, is_partial in steps:
        now_ms += pause_ms
        less.append((now_ms, Reading(records, is_partial=is_partial)))
        more.append((now_ms, Reading(records + 100, is_partial=is_partial)))
    assert all(low <= high for low, high in zip(walk(less), walk(more), strict=True))


def test_a_state_taken_over_goes_on_where_it_was() -> None:
    for level in Level:
        assert GroupLevels.at(level).level is level


def test_a_reading_adds_up_records_and_takes_the_longest_time() -> None:
    rows = [
        PartitionLag(topic="a", partition=0, standing=Standing.OK, lag=5, behind_ms=100),
        PartitionLag(topic="a", partition=1, standing=Standing.OK, lag=2, behind_ms=300),
        PartitionLag(topic="b", partition=0, standing=Standing.AWAY),
    ]
    assert read(rows, lambda topic: topic == "a") == Reading(7, 300)
    assert read(rows, lambda _topic: True) == Reading(7, 300, is_partial=True)

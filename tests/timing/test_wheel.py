"""The timing wheel against a plain list of deadlines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.timing.wheel import Timer, TimingWheel

Step = tuple[str, int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-20, 200_000)),
        st.tuples(st.just("add"), st.integers(-20, 60)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.integers(0, 500)),
        st.tuples(st.just("advance"), st.integers(0, 100_000)),
        st.tuples(st.just("sleep"), st.just(0)),
    ),
    max_size=60,
)


def rounded_up(deadline_ms: int, tick_ms: int) -> int:
    return -(-deadline_ms // tick_ms) * tick_ms


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 20), st.integers(2, 9), st.integers(0, 10_000), steps)
def test_wheel_agrees_with_a_sorted_list(
    tick_ms: int, size: int, start_ms: int, script: list[Step]
) -> None:
    wheel: TimingWheel[int] = TimingWheel(tick_ms, size, start_ms)
    now_ms = start_ms
    added: list[Timer[int]] = []
    waiting: dict[int, int] = {}  # item -> the time from which on it must have expired

    for verb, amount in script:
        if verb == "add":
            item = len(added)
            added.append(wheel.add(now_ms + amount, item))
            waiting[item] = rounded_up(now_ms + amount, tick_ms)
        elif verb == "cancel" and added:
            item = amount % len(added)
            assert added[item].cancel() is (item in waiting)
            waiting.pop(item, None)
        else:
            if verb == "sleep":
                wake_ms = wheel.next_expiry_ms()
                assert wake_ms == min(waiting.values(), default=None)
                now_ms = max(now_ms, wake_ms if wake_ms is not None else now_ms)
            else:
                now_ms += amount
            expired = wheel.advance(now_ms)
            due = [item for item, due_ms in waiting.items() if due_ms <= now_ms]
            assert sorted(expired) == due, "neither early nor later than one tick"
            times = [waiting.pop(item) for item in expired]
            assert times == sorted(times), "in the order of their buckets"
        assert len(wheel) == len(waiting)
        assert [entry.pending for entry in added] == [i in waiting for i in range(len(added))]


def test_time_that_goes_back_expires_nothing() -> None:
    wheel: TimingWheel[str] = TimingWheel(1, 8, 1_000)
    wheel.add(1_500, "later")
    assert wheel.advance(500) == []
    assert wheel.advance(1_499) == []
    assert wheel.advance(1_500) == ["later"]


def test_a_passed_deadline_expires_with_the_next_advance() -> None:
    wheel: TimingWheel[str] = TimingWheel(10, 8, 1_000)
    wheel.add(3, "long ago")
    assert wheel.advance(1_000) == ["long ago"]


def test_entries_of_one_bucket_expire_in_the_order_of_adding() -> None:
    wheel: TimingWheel[int] = TimingWheel(10, 4, 0)
    for item in (3, 1, 2):
        wheel.add(95 + item, item)
    assert wheel.advance(100) == [3, 1, 2]


def test_cancelled_entries_leave_no_tick_behind() -> None:
    wheel: TimingWheel[int] = TimingWheel(1, 4, 0)
    entries = [wheel.add(deadline_ms, deadline_ms) for deadline_ms in range(1, 500)]
    for entry in entries:
        entry.cancel()
    assert wheel.next_expiry_ms() is None
    assert wheel.advance(1_000) == []


@pytest.mark.parametrize(("tick_ms", "size"), [(0, 8), (1, 1), (-1, 8)])
def test_senseless_dimensions_are_refused(tick_ms: int, size: int) -> None:
    with pytest.raises(ValueError, match="a wheel needs"):
        TimingWheel(tick_ms, size, 0)

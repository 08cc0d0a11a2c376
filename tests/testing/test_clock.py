"""The virtual clock with a real event loop in another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.broker.clock import WakeUp
from headrace.testing import VirtualClock


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def wake_after(
    clock: VirtualClock,
    loop: asyncio.AbstractEventLoop,
    delay_ms: int,
    wake: Callable[[], object],
) -> WakeUp:
    async def ask() -> WakeUp:
        def ring() -> None:
            wake()

        return clock.wake_after(loop, delay_ms, ring)

    return asyncio.run_coroutine_threadsafe(ask(), loop).result(10)


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = VirtualClock(now_ms=1_000_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000_000, 0)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000_250, 250)


def test_alarms_ring_in_order_at_their_own_time(loop: asyncio.AbstractEventLoop) -> None:
    clock = VirtualClock()
    rung: list[tuple[str, int]] = []
    wake_after(clock, loop, 200, lambda: rung.append(("late", clock.monotonic_ms())))
    wake_after(clock, loop, 100, lambda: rung.append(("early", clock.monotonic_ms())))
    clock.advance(99)
    assert rung == []
    clock.advance(1000)
    assert rung == [("early", 100), ("late", 200)]


def test_a_periodic_alarm_rings_every_period_within_one_advance(
    loop: asyncio.AbstractEventLoop,
) -> None:
    clock = VirtualClock()
    rung: list[int] = []

    def ring() -> None:
        rung.append(clock.monotonic_ms())
        clock.wake_after(loop, 300, ring)

    wake_after(clock, loop, 300, ring)
    clock.advance(1000)
    assert rung == [300, 600, 900]


def test_a_cancelled_alarm_stays_silent(loop: asyncio.AbstractEventLoop) -> None:
    clock = VirtualClock()
    rung: list[int] = []
    wake_after(clock, loop, 10, lambda: rung.append(1)).cancel()
    clock.advance(100)
    assert rung == []


def test_an_alarm_that_is_due_already_rings_without_an_advance(
    loop: asyncio.AbstractEventLoop,
) -> None:
    rung = threading.Event()
    wake_after(VirtualClock(), loop, 0, rung.set)
    assert rung.wait(10)


def test_an_error_in_an_alarm_reaches_the_test(loop: asyncio.AbstractEventLoop) -> None:
    clock = VirtualClock()

    def fail() -> None:
        raise LookupError("broken")

    wake_after(clock, loop, 5, fail)
    with pytest.raises(LookupError, match="broken"):
        clock.advance(5)


def test_tasks_that_an_alarm_starts_have_ended_when_time_moves_on(
    loop: asyncio.AbstractEventLoop,
) -> None:
    clock = VirtualClock()
    times: list[int] = []

    async def work() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        times.append(clock.monotonic_ms())
        clock.wake_after(loop, 100, begin)

    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        tasks.append(loop.create_task(work()))

    wake_after(clock, loop, 100, begin)
    clock.advance(350)
    assert times == [100, 200, 300]


def test_a_jump_of_the_wall_clock_leaves_deadlines_alone() -> None:
    clock = VirtualClock(now_ms=1_000_000)
    clock.jump(-5_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (995_000, 0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot move by -1 ms"):
        VirtualClock().advance(-1)

"""Threads that wait on virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.waiting import WAIT_SECONDS

from headrace.testing import VirtualClock

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=0)


class Worker(threading.Thread):
    """A thread that waits on the clock; it does when this is made."""

    def __init__(self, clock: VirtualClock, work: Callable[[], None], due_ms: int) -> None:
        super().__init__(target=work)
        self.start()
        while clock.next_deadline_ms() != due_ms:
            assert self.is_alive()

    def end(self) -> None:
        """Wait for its end."""
        self.join(WAIT_SECONDS)
        assert not self.is_alive()


def test_a_wait_ends_when_its_time_has_passed(clock: VirtualClock) -> None:
    ended: list[bool] = []
    never = threading.Event()
    worker = Worker(clock, lambda: ended.append(clock.wait(never, HOUR_MS)), HOUR_MS)
    clock.advance(HOUR_MS - 1)
    assert ended == []
    clock.advance(1)
    worker.end()
    assert ended == [False]
    assert clock.next_deadline_ms() is None


def test_an_event_ends_a_wait_at_once(clock: VirtualClock) -> None:
    ended: list[bool] = []
    event = threading.Event()
    worker = Worker(clock, lambda: ended.append(clock.wait(event, HOUR_MS)), HOUR_MS)
    event.set()
    worker.end()
    assert ended == [True]
    assert clock.next_deadline_ms() is None
    assert clock.wait(event, HOUR_MS) is True


def test_no_time_is_no_wait(clock: VirtualClock) -> None:
    assert clock.wait(threading.Event(), 0) is False


def test_a_poll_is_on_real_time_and_virtual_time_stands_still(clock: VirtualClock) -> None:
    assert clock.wait(threading.Event(), HOUR_MS, poll_ms=1) is False
    assert clock.monotonic_ms() == 0
    assert clock.next_deadline_ms() is None


def test_a_thread_that_works_every_minute_works_sixty_times_in_an_advanced_hour(
    clock: VirtualClock,
) -> None:
    stop = threading.Event()
    worked_ms: list[int] = []

    def work() -> None:
        while not clock.wait(stop, 60_000):
            worked_ms.append(clock.monotonic_ms())

    worker = Worker(clock, work, 60_000)
    clock.advance(HOUR_MS)
    assert worked_ms == list(range(60_000, HOUR_MS + 1, 60_000))
    stop.set()
    worker.end()


def test_what_a_thread_asks_for_while_it_works_is_waited_for_too(clock: VirtualClock) -> None:
    never = threading.Event()
    seen_ms: list[int] = []

    def work(delays_ms: tuple[int, ...]) -> None:
        for delay_ms in delays_ms:
            clock.wait(never, delay_ms)
            seen_ms.append(clock.monotonic_ms())

    workers = [
        Worker(clock, lambda: work((103,)), 103),
        Worker(clock, lambda: work((100, 1, 5)), 100),
    ]
    clock.advance(1000)
    for worker in workers:
        worker.end()
    assert seen_ms == [100, 101, 103, 106]


def test_a_thread_that_never_waits_again_does_not_stop_time(clock: VirtualClock) -> None:
    never, end = threading.Event(), threading.Event()

    def work() -> None:
        clock.wait(never, 10)
        end.wait(WAIT_SECONDS)

    worker = Worker(clock, work, 10)
    clock.advance(HOUR_MS)
    assert clock.monotonic_ms() == HOUR_MS
    end.set()
    worker.end()

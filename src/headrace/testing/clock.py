"""A clock that stands still until the test moves it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable

from headrace.broker.clock import WakeUp

ADVANCE_TIMEOUT_SECONDS = 30.0
# Work that an alarm starts may wait for something else, such as a client; then time goes on.
SETTLE_TIMEOUT_SECONDS = 5.0
# A thread that was woken may do something else instead of waiting again.
THREAD_TIMEOUT_SECONDS = 1.0
# How late a thread that waits on virtual time may notice an event.
TICK_SECONDS = 0.005


class VirtualAlarm:
    """A wake-up on virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self.loop = loop
        self.wake: Callable[[], None] | None = wake

    def cancel(self) -> None:
        self.wake = None

    def ring(self) -> None:
        """Call `wake` on the loop, unless it was cancelled before."""
        wake, self.wake = self.wake, None
        if wake is not None:
            wake()


class ThreadAlarm:
    """A thread that waits for virtual time to pass."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self.rung = threading.Event()


class VirtualClock:
    """Wall and monotonic time that move only by `advance`, so that slow things are tested quickly.

    Drives sessions, retention and transaction timeouts of a broker, and the waits of threads, such
    as those of retries. Fetch waits and rebalance delays are on real time in the broker, so real
    clients work as usual. One clock may serve several brokers and applications.
    """

    def __init__(self, now_ms: int | None = None) -> None:
        self._wall_at_zero_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._elapsed_ms = 0
        self._lock = threading.Lock()
        self._advancing = threading.Lock()
        self._alarms: list[tuple[int, int, VirtualAlarm | ThreadAlarm]] = []
        self._order = itertools.count()
        # Threads that have waited on this clock before and do not wait now.
        self._at_work: set[threading.Thread] = set()
        self._asleep = threading.Condition(self._lock)

    def now_ms(self) -> int:
        return self._wall_at_zero_ms + self._elapsed_ms

    def monotonic_ms(self) -> int:
        return self._elapsed_ms

    def wake_after(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, wake: Callable[[], None]
    ) -> WakeUp:
        if delay_ms <= 0:
            return loop.call_soon(wake)
        alarm = VirtualAlarm(loop, wake)
        with self._lock:
            due_ms = self._elapsed_ms + delay_ms
            heapq.heappush(self._alarms, (due_ms, next(self._order), alarm))
        return alarm

    def wait(self, event: threading.Event, timeout_ms: int, *, poll_ms: int | None = None) -> bool:
        """Block a thread until the event is set (True), `timeout_ms` of this clock have passed,
        or `poll_ms` of real time."""
        if timeout_ms <= 0 or event.is_set():
            return event.is_set()
        alarm = ThreadAlarm()
        with self._lock:
            due_ms = self._elapsed_ms + timeout_ms
            entry = (due_ms, next(self._order), alarm)
            heapq.heappush(self._alarms, entry)
            self._at_work.discard(threading.current_thread())
            self._asleep.notify_all()
        end = math.inf if poll_ms is None else time.monotonic() + poll_ms / 1000
        while not event.is_set() and not alarm.rung.wait(TICK_SECONDS) and time.monotonic() < end:
            pass
        with self._lock:
            self._at_work.add(threading.current_thread())
            if not alarm.rung.is_set():
                self._alarms.remove(entry)
                heapq.heapify(self._alarms)
        return event.is_set()

    def next_deadline_ms(self) -> int | None:
        """In how many milliseconds the next deadline is; None without one."""
        with self._lock:
            return self._alarms[0][0] - self._elapsed_ms if self._alarms else None

    def advance(self, ms: int) -> None:
        """Move time forward, stopping at every deadline on the way.

        When this returns, everything due was called, the tasks it started have ended, and the
        threads it woke wait again. Call it from a test's thread, not from a broker's loop.
        """
        if ms < 0:
            raise ValueError(f"time cannot move by {ms} ms; use 0 or more, or jump()")
        with self._advancing:
            target_ms = self._elapsed_ms + ms
            self._settle_threads()
            while (alarm := self._next_alarm(target_ms)) is not None:
                if isinstance(alarm, VirtualAlarm):
                    _ring_on_its_loop(alarm)
                self._settle_threads()
            with self._lock:
                self._elapsed_ms = target_ms

    def jump(self, ms: int) -> None:
        """Step the wall clock alone, forward or back, as an operator or a bad time server does."""
        with self._lock:
            self._wall_at_zero_ms += ms

    def _next_alarm(self, target_ms: int) -> VirtualAlarm | ThreadAlarm | None:
        with self._lock:
            if not self._alarms or self._alarms[0][0] > target_ms:
                return None
            due_ms, _, alarm = heapq.heappop(self._alarms)
            self._elapsed_ms = max(self._elapsed_ms, due_ms)
            if isinstance(alarm, ThreadAlarm):
                self._at_work.add(alarm.thread)
                alarm.rung.set()
            return alarm

    def _settle_threads(self) -> None:
        """Wait until the threads that use this clock wait again."""
        give_up_at = time.monotonic() + THREAD_TIMEOUT_SECONDS
        with self._asleep:
            while busy := self._busy_threads():
                if time.monotonic() > give_up_at:
                    # They are busy with something else; they count again once they wait again.
                    self._at_work -= busy
                    return
                self._asleep.wait(TICK_SECONDS)

    def _busy_threads(self) -> set[threading.Thread]:
        here = threading.current_thread()
        self._at_work = {thread for thread in self._at_work if thread.is_alive()}
        return self._at_work - {here}


def _ring_on_its_loop(alarm: VirtualAlarm) -> None:
    """Ring the alarm, and wait for the tasks that it starts."""
    if alarm.wake is None or alarm.loop.is_closed():
        return
    rung: concurrent.futures.Future[None] = concurrent.futures.Future()

    def ring() -> None:
        before = asyncio.all_tasks(alarm.loop)
        try:
            alarm.ring()
        except BaseException as error:
            rung.set_exception(error)
            return
        started = asyncio.all_tasks(alarm.loop) - before
        if not started:
            rung.set_result(None)
            return
        settled = alarm.loop.create_task(asyncio.wait(started, timeout=SETTLE_TIMEOUT_SECONDS))
        settled.add_done_callback(lambda _: rung.set_result(None))

    alarm.loop.call_soon_threadsafe(ring)
    rung.result(ADVANCE_TIMEOUT_SECONDS)

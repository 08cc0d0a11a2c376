"""Time: the clock port, and timers on a clock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from headrace.timing.wheel import Timer, TimingWheel

TICK_MS = 1
WHEEL_SIZE = 64

log = logging.getLogger(__name__)


class WakeUp(Protocol):
    """A scheduled call that may be cancelled."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the broker knows of time; the test kit has a virtual one."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as stamped into records."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; every deadline is counted on them."""
        ...

    def wake_after(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, wake: Callable[[], None]
    ) -> WakeUp:
        """Call `wake` on the loop once this clock has moved on by `delay_ms`."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wake_after(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, wake: Callable[[], None]
    ) -> WakeUp:
        return loop.call_later(delay_ms / 1000, wake)


class Timers:
    """Calls functions at deadlines on a clock's monotonic time, never early."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._wheel: TimingWheel[Callable[[], None]] = TimingWheel(
            TICK_MS, WHEEL_SIZE, clock.monotonic_ms()
        )
        self._wake_up: WakeUp | None = None
        self._wake_up_at_ms = 0

    def call_later(self, delay_ms: int, function: Callable[[], None]) -> Timer[Callable[[], None]]:
        """Call `function` after `delay_ms`; the timer's `cancel()` prevents it."""
        return self.call_at(self._clock.monotonic_ms() + delay_ms, function)

    def call_at(self, deadline_ms: int, function: Callable[[], None]) -> Timer[Callable[[], None]]:
        """Call `function` once the monotonic clock has reached `deadline_ms`."""
        timer = self._wheel.add(deadline_ms, function)
        if self._wake_up is None or deadline_ms < self._wake_up_at_ms:
            self._schedule()
        return timer

    def close(self) -> None:
        """Forget every timer."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _schedule(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        next_ms = self._wheel.next_expiry_ms()
        if next_ms is not None:
            self._wake_up_at_ms = next_ms
            delay_ms = max(next_ms - self._clock.monotonic_ms(), 0)
            self._wake_up = self._clock.wake_after(self._loop, delay_ms, self._fire)

    def _fire(self) -> None:
        self._wake_up = None
        for function in self._wheel.advance(self._clock.monotonic_ms()):
            try:
                function()
            except Exception:
                log.exception("a timer failed")
        if self._wake_up is None:
            self._schedule()

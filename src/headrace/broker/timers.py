"""Timers on a clock: one timing wheel, one pending wake-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.clock import Alarm, Clock
from headrace.timing.wheel import Timer, TimingWheel

TICK_MS = 1
WHEEL_SIZE = 64

log = logging.getLogger(__name__)


class Timers:
    """Calls functions at deadlines of the clock's monotonic time, never early."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._wheel: TimingWheel[Callable[[], None]] = TimingWheel(
            TICK_MS, WHEEL_SIZE, clock.monotonic_ms()
        )
        self._alarm: Alarm | None = None
        self._alarm_at_ms = 0

    def call_later(self, delay_ms: int, function: Callable[[], None]) -> Timer[Callable[[], None]]:
        """Call `function` after `delay_ms`; the entry's `cancel()` calls it off."""
        return self.call_at(self._clock.monotonic_ms() + delay_ms, function)

    def call_at(self, deadline_ms: int, function: Callable[[], None]) -> Timer[Callable[[], None]]:
        """Call `function` once the monotonic clock has reached `deadline_ms`."""
        entry = self._wheel.add(deadline_ms, function)
        if self._alarm is None or deadline_ms < self._alarm_at_ms:
            self._arm()
        return entry

    def close(self) -> None:
        """Forget every timer."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        next_ms = self._wheel.next_expiry_ms()
        if next_ms is not None:
            self._alarm_at_ms = next_ms
            delay_ms = max(next_ms - self._clock.monotonic_ms(), 0)
            self._alarm = self._clock.wake_after(self._loop, delay_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        for function in self._wheel.advance(self._clock.monotonic_ms()):
            try:
                function()
            except Exception:
                log.exception("a timer's function failed")
        if self._alarm is None:
            self._arm()

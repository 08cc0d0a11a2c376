"""The clock port: wall time for records, monotonic time for deadlines, and waking at a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Alarm(Protocol):
    """A wake-up that has been asked for and may be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the broker knows of time; the test kit has a virtual twin."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as stamped into records."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; every deadline is counted on them."""
        ...

    def wake_after(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, wake: Callable[[], None]
    ) -> Alarm:
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
    ) -> Alarm:
        return loop.call_later(delay_ms / 1000, wake)

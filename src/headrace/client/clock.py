"""The clock port: wall time, monotonic time and a wait on an event."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What handlers, retries and relays need of time; the test kit has a virtual one."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as stored in tables."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; every delay is counted on them."""
        ...

    def wait(self, event: threading.Event, timeout_ms: int, *, poll_ms: int | None = None) -> bool:
        """Block until the event is set (True) or this clock has moved on by `timeout_ms`.

        With `poll_ms` it also ends after that much real time, so that the caller can check for the
        work of other processes; a virtual clock does not stop for it.
        """
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wait(self, event: threading.Event, timeout_ms: int, *, poll_ms: int | None = None) -> bool:
        return event.wait((timeout_ms if poll_ms is None else min(timeout_ms, poll_ms)) / 1000)

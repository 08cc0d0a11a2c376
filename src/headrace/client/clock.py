"""The clock port of the reliability layer: wall time, monotonic time and a wait on an event."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What handlers, retries and relays know of time; the test kit has a virtual twin."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, as stored in tables."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; every delay is counted on them."""
        ...

    def wait(self, event: threading.Event, timeout_ms: int, *, poll_ms: int | None = None) -> bool:
        """Block until the event is set (True) or this clock has moved on by `timeout_ms`.

        With `poll_ms` it ends after so much real time as well, to look for what another process
        has done: such looks are no deadlines, and a virtual clock does not stop for them.
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

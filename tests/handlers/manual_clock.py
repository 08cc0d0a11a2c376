"""A clock that a test sets by hand."""

from __future__ import annotations

import threading


class ManualClock:
    """Wall and monotonic time that move only by `pass_ms`; a wait returns at once."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def wait(self, event: threading.Event, timeout_ms: int, *, poll_ms: int | None = None) -> bool:
        return event.is_set()

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms

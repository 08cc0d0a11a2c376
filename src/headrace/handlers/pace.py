"""Pace: how many messages a worker takes at once, and whether more workers help."""

from __future__ import annotations

NS_PER_MS = 1_000_000
# A new figure counts for a fifth; one that is far above the rest counts at once.
WEIGHT = 0.2
JUMP = 4.0
# Python runs on one core at a time: with so much of it in use, another thread only gets in the way.
CORE_IN_USE = 0.8


class Pace:
    """The moving averages of a handler's time per message, and of its share of a processor."""

    __slots__ = ("_core", "_is_known", "_most", "_ns", "_target_ns")

    def __init__(self, target_ms: float, most: int) -> None:
        self._target_ns = target_ms * NS_PER_MS
        self._most = most
        self._is_known = False
        self._ns = self._target_ns
        # How much of its time a handler computes; all of it, until something is known.
        self._core = 1.0

    def note(self, messages: int, ns: int, cpu_ns: int | None = None) -> None:
        """Learn from a chunk; the time on the processor is known of some of them only."""
        if not messages:
            return
        each = ns / messages
        weight = WEIGHT if self._is_known and each <= JUMP * self._ns else 1.0
        self._is_known = True
        self._ns += weight * (each - self._ns)
        if cpu_ns is not None:
            self._core += weight * (cpu_ns / max(ns, 1) - self._core)

    @property
    def chunk(self) -> int:
        """Messages that take about the target time; one for slow handlers."""
        return max(1, min(self._most, int(self._target_ns / max(self._ns, 1.0))))

    def has_use_for_more(self, busy: int) -> bool:
        """Whether handlers wait more than they compute while so many threads are at work."""
        return self._core * busy < CORE_IN_USE

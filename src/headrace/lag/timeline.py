"""When an offset was written, by what was seen of a partition's end; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

POINTS_MAX = 512
# An answer between two looks that lie further apart than this would be too vague.
GAP_MS_MAX = 60_000


class Timeline:
    """The ends of one partition as seen from time to time, thinned out as they age."""

    def __init__(self, points_max: int = POINTS_MAX, gap_ms_max: int = GAP_MS_MAX) -> None:
        assert points_max >= 4
        self._points_max = points_max
        self._gap_ms_max = gap_ms_max
        self._ends: list[int] = []
        self._times_ms: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._ends, self._times_ms, strict=True)

    def see(self, end: int, at_ms: int) -> None:
        """Note where the end was at a time; one that went back belongs to a new log."""
        if self._ends and (end < self._ends[-1] or at_ms < self._times_ms[-1]):
            self._ends.clear()
            self._times_ms.clear()
        if len(self._ends) > 1 and self._ends[-2] == end:
            # The end stands still: its first and its last moment there say it all.
            self._times_ms[-1] = at_ms
            return
        self._ends.append(end)
        self._times_ms.append(at_ms)
        if len(self._ends) > self._points_max:
            self._thin()

    def written_ms(self, offset: int) -> int | None:
        """When the record at this offset was written; None if it was not seen closely enough.

        The end passed it between two looks: the time is where a straight line between them does.
        """
        # The first look that saw it.
        after = bisect_left(self._ends, offset + 1)
        if after == 0 or after == len(self._ends):
            return None
        before_ms, after_ms = self._times_ms[after - 1], self._times_ms[after]
        if after_ms - before_ms > self._gap_ms_max:
            return None
        before, end = self._ends[after - 1], self._ends[after]
        return before_ms + (after_ms - before_ms) * (offset + 1 - before) // (end - before)

    def _thin(self) -> None:
        """Drop every other point of the older half; gaps there grow, and with them the error."""
        half = len(self._ends) // 2
        self._ends[:half] = self._ends[:half:2]
        self._times_ms[:half] = self._times_ms[:half:2]

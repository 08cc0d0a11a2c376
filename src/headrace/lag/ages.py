"""When the next record of each group was written: estimated from what was seen, or read once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.client.wire.leaders import Isolation, Leaders
from headrace.lag.group_lag import Bounds
from headrace.protocol.partitions import TopicPartition

POINTS_MAX = 512
# Between two measurements further apart than this, an estimate would be too vague.
GAP_MS_MAX = 60_000
# Larger than most batches; of most partitions only one batch is needed.
BYTES_EACH = 64 << 10
# How many fetches one measurement spends on markers and aborted records.
ROUNDS_MAX = 4

# A partition and an offset in it.
LogPosition = tuple[TopicPartition, int]
# A group in a partition.
GroupPartition = tuple[str, TopicPartition]


class Ages:
    """Remembers earlier measurements, so that most answers cost nothing.

    The next record of a group was written when the partition's end passed it, which was seen here.
    For a group that does not move, and for records older than the first measurement, the record is
    read, once.
    """

    def __init__(self) -> None:
        self._next_records = NextRecords()
        self._timelines: dict[TopicPartition, Timeline] = {}
        self._positions: dict[GroupPartition, LogPosition] = {}

    def find(
        self,
        leaders: Leaders,
        lagging: Mapping[GroupPartition, int],
        bounds: Mapping[TopicPartition, Bounds],
        at_ms: int,
    ) -> dict[GroupPartition, NextRecord]:
        """The next record of each group that is behind, by the group's offset."""
        self._timelines = {key: self._timelines.get(key) or Timeline() for key in bounds}
        for key, found in bounds.items():
            self._timelines[key].see(found.stable, at_ms)
        before, self._positions = (
            self._positions,
            {name: (name[1], at) for name, at in lagging.items()},
        )
        ages: dict[GroupPartition, NextRecord] = {}
        unknown: dict[GroupPartition, LogPosition] = {}
        for name, position in self._positions.items():
            seen_ms = self._timelines[position[0]].written_ms(position[1])
            # A group that does not move may be at a transaction marker, which nobody reads.
            if seen_ms is None or before.get(name) == position:
                unknown[name] = position
            else:
                ages[name] = NextRecord(position[1], True, seen_ms)
        found_at = self._next_records.find(leaders, unknown.values(), bounds)
        ages.update((name, found_at[position]) for name, position in unknown.items())
        return ages


@dataclass(slots=True)
class NextRecord:
    """The first record at or after a position.

    Until one is found, there is none before `offset`.
    """

    offset: int
    is_found: bool = False
    written_ms: int | None = None
    """None also if the record has no timestamp."""


class NextRecords:
    """Finds next records, and remembers them while they are asked for."""

    def __init__(self) -> None:
        self._known: dict[LogPosition, NextRecord] = {}

    def find(
        self,
        leaders: Leaders,
        positions: Iterable[LogPosition],
        bounds: Mapping[TopicPartition, Bounds],
    ) -> dict[LogPosition, NextRecord]:
        """The next record of each position; not found yet if a leader does not answer."""
        self._known = {
            position: self._known.get(position) or NextRecord(position[1]) for position in positions
        }
        for isolation in Isolation:
            for _ in range(ROUNDS_MAX):
                searched = {
                    position: first
                    for position, first in self._known.items()
                    if not first.is_found
                    and _isolation(position, bounds) is isolation
                    and first.offset < _end(position, bounds)
                }
                if not searched:
                    break
                _read(leaders, searched, isolation)
        return self._known


def _isolation(position: LogPosition, bounds: Mapping[TopicPartition, Bounds]) -> Isolation:
    """A group past the last stable offset reads uncommitted records."""
    key, offset = position
    return Isolation.COMMITTED if offset <= bounds[key].stable else Isolation.UNCOMMITTED


def _end(position: LogPosition, bounds: Mapping[TopicPartition, Bounds]) -> int:
    found = bounds[position[0]]
    return found.stable if position[1] <= found.stable else found.end


def _read(
    leaders: Leaders, searched: Mapping[LogPosition, NextRecord], isolation: Isolation
) -> None:
    left = dict(searched)
    while left:
        # A fetch has one offset per partition, but groups may be at several.
        asked = {position[0]: (position, first) for position, first in left.items()}
        offsets = {key: first.offset for key, (_, first) in asked.items()}
        found = leaders.read(offsets, BYTES_EACH, 1, isolation)
        for key, (position, first) in asked.items():
            del left[position]
            # A batch that is too large to come with others comes alone.
            stretch = found.get(key) or leaders.read(
                {key: first.offset}, BYTES_EACH, 1, isolation
            ).get(key)
            if stretch is None:
                continue
            first.offset = stretch.next_offset
            if stretch.records:
                record = stretch.records[0]
                first.offset, first.is_found = record.offset, True
                first.written_ms = record.timestamp if record.timestamp >= 0 else None


class Timeline:
    """The ends of one partition at the times of measurements; old ones are thinned out."""

    def __init__(self, points_max: int = POINTS_MAX, gap_ms_max: int = GAP_MS_MAX) -> None:
        assert points_max >= 4
        self._points_max = points_max
        self._gap_ms_max = gap_ms_max
        self._ends: list[int] = []
        self._times_ms: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._ends, self._times_ms, strict=True)

    def see(self, end: int, at_ms: int) -> None:
        """Note the end at a time; if it went back, the partition is a new one."""
        if self._ends and (end < self._ends[-1] or at_ms < self._times_ms[-1]):
            self._ends.clear()
            self._times_ms.clear()
        if len(self._ends) > 1 and self._ends[-2] == end:
            # The end did not move: the first and the last time at it are enough.
            self._times_ms[-1] = at_ms
            return
        self._ends.append(end)
        self._times_ms.append(at_ms)
        if len(self._ends) > self._points_max:
            self._thin()

    def written_ms(self, offset: int) -> int | None:
        """When the record at this offset was written; None if that is not known well enough.

        The end passed the offset between two measurements; the time is interpolated.
        """
        # The first measurement after it was written.
        after = bisect_left(self._ends, offset + 1)
        if after == 0 or after == len(self._ends):
            return None
        before_ms, after_ms = self._times_ms[after - 1], self._times_ms[after]
        if after_ms - before_ms > self._gap_ms_max:
            return None
        before, end = self._ends[after - 1], self._ends[after]
        return before_ms + (after_ms - before_ms) * (offset + 1 - before) // (end - before)

    def _thin(self) -> None:
        """Drop every other point of the older half, which makes old estimates less exact."""
        half = len(self._ends) // 2
        self._ends[:half] = self._ends[:half:2]
        self._times_ms[:half] = self._times_ms[:half:2]

"""How long ago the next record of each group was written, read or reckoned."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.wire.leaders import Leaders
from headrace.lag.first_records import First, FirstRecords, Spot
from headrace.lag.places import Bounds
from headrace.lag.timeline import Timeline
from headrace.protocol.partitions import TopicPartition

# A group in a partition.
Subject = tuple[str, TopicPartition]


class Ages:
    """Keeps what was seen from look to look, so that most answers cost nothing.

    The next record of a group was written when the partition's end passed it, which was seen here.
    For a group that stands still, and for what was before the first look, it is read, once.
    """

    def __init__(self) -> None:
        self._firsts = FirstRecords()
        self._timelines: dict[TopicPartition, Timeline] = {}
        self._spots: dict[Subject, Spot] = {}

    def find(
        self,
        leaders: Leaders,
        lagging: Mapping[Subject, int],
        bounds: Mapping[TopicPartition, Bounds],
        at_ms: int,
    ) -> dict[Subject, First]:
        """The first record of each group that is behind, by the place where the group is."""
        self._timelines = {key: self._timelines.get(key) or Timeline() for key in bounds}
        for key, found in bounds.items():
            self._timelines[key].see(found.stable, at_ms)
        before, self._spots = self._spots, {name: (name[1], at) for name, at in lagging.items()}
        ages: dict[Subject, First] = {}
        unknown: dict[Subject, Spot] = {}
        for name, spot in self._spots.items():
            seen_ms = self._timelines[spot[0]].written_ms(spot[1])
            # One that stands still may stand before a marker, which is nothing to read.
            if seen_ms is None or before.get(name) == spot:
                unknown[name] = spot
            else:
                ages[name] = First(spot[1], True, seen_ms)
        found_at = self._firsts.find(leaders, unknown.values(), bounds)
        ages.update((name, found_at[spot]) for name, spot in unknown.items())
        return ages

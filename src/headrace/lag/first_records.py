"""The first record that a group has still to read: where it is, and when it was written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.wire.leaders import Isolation, Leaders
from headrace.lag.places import Bounds
from headrace.protocol.partitions import TopicPartition

# Most batches are smaller, and of most partitions one batch is all that is read.
BYTES_EACH = 64 << 10
# Stretches of markers and aborted records are walked through so far in one go.
ROUNDS_MAX = 4

# A partition and an offset in it.
Spot = tuple[TopicPartition, int]


@dataclass(slots=True)
class First:
    """What is known of the first record at a spot or after it.

    Until one is found, `offset` is how far it is known that there is none.
    """

    offset: int
    is_found: bool = False
    written_ms: int | None = None
    """None too if the record has no time."""


class FirstRecords:
    """Finds first records and remembers them for as long as they are asked for."""

    def __init__(self) -> None:
        self._known: dict[Spot, First] = {}

    def find(
        self, leaders: Leaders, spots: Iterable[Spot], bounds: Mapping[TopicPartition, Bounds]
    ) -> dict[Spot, First]:
        """What is known of each spot after a look; one whose leader is away may have no news."""
        self._known = {spot: self._known.get(spot) or First(spot[1]) for spot in spots}
        for isolation in Isolation:
            for _ in range(ROUNDS_MAX):
                searched = {
                    spot: first
                    for spot, first in self._known.items()
                    if not first.is_found
                    and _isolation(spot, bounds) is isolation
                    and first.offset < _end(spot, bounds)
                }
                if not searched:
                    break
                _read(leaders, searched, isolation)
        return self._known


def _isolation(spot: Spot, bounds: Mapping[TopicPartition, Bounds]) -> Isolation:
    """Who is past the last stable offset reads uncommitted records."""
    key, offset = spot
    return Isolation.COMMITTED if offset <= bounds[key].stable else Isolation.UNCOMMITTED


def _end(spot: Spot, bounds: Mapping[TopicPartition, Bounds]) -> int:
    found = bounds[spot[0]]
    return found.stable if spot[1] <= found.stable else found.end


def _read(leaders: Leaders, searched: Mapping[Spot, First], isolation: Isolation) -> None:
    left = dict(searched)
    while left:
        # Groups may stand at different places of one partition, and a fetch has one of each.
        asked = {spot[0]: (spot, first) for spot, first in left.items()}
        places = {key: first.offset for key, (_, first) in asked.items()}
        found = leaders.read(places, BYTES_EACH, 1, isolation)
        for key, (spot, first) in asked.items():
            del left[spot]
            # A batch that was too large to come with others comes alone.
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

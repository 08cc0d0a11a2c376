"""Records that were put away and may come again, because a crash came before their commit."""

from __future__ import annotations

from collections.abc import Iterable

# Messages in memory at once: what comes first may lie so far above what comes later.
NEAR_MESSAGES = 10_000
# So far above a record the others get while it waits its turn; see GAP_MESSAGES_MAX.
FAR_MESSAGES = 100_000


class Repeats:
    """Offsets by partition, each forgotten as soon as it cannot come any more; pure."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], set[int]] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._met: set[tuple[str, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add(self, topic: str, partition: int, offsets: Iterable[int]) -> None:
        """Expect these offsets of a partition that was just assigned."""
        expected = set(offsets)
        self._met.discard((topic, partition))
        if expected:
            self._offsets[topic, partition] = expected
            self._last[topic, partition] = max(expected)

    def forget(self, topic: str, partition: int) -> None:
        """Expect nothing more of a partition."""
        self._offsets.pop((topic, partition), None)

    def done(self, topic: str, partition: int, offset: int) -> None:
        """It has come again; it does so once."""
        offsets = self._offsets.get((topic, partition))
        if offsets is not None:
            offsets.discard(offset)
            if not offsets:
                self.forget(topic, partition)

    def has(self, topic: str, partition: int, offset: int) -> bool:
        """Whether this record was put away before."""
        place = (topic, partition)
        offsets = self._offsets.get(place)
        if offsets is None:
            return False
        is_known = offset in offsets
        if place not in self._met:
            # The first to come tells where the partition goes on: nothing comes from far below.
            self._met.add(place)
            offsets = {old for old in offsets if old > offset - NEAR_MESSAGES}
            self._offsets[place] = offsets
        if not offsets or offset > self._last[place] + FAR_MESSAGES:
            self.forget(*place)
        return is_known

"""The entries of one state partition: the near ones in memory, the far ones in the cache."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ledger.cache import Cache, Held
from headrace.ledger.machine import Entry

# What is due soon but does not fit lies in the cache as well.
NEAR_BYTES_MAX = 12_000_000
# What an entry takes beside its body.
ENTRY_BYTES = 500

# Due time and number, by which entries are ordered.
Moment = tuple[int, int]


class Shelf:
    """Entries by number and by id; each has its number from when it came, never used twice."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._near: dict[int, Entry] = {}
        self._numbers: dict[str, int] = {}
        self._near_bytes = 0
        self._last = 0

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self._near) + self._cache.count

    def find(self, ids: set[str]) -> dict[str, Held]:
        """What is known of ids; the far ones without their bodies."""
        numbers, near = self._numbers, self._near
        found = {}
        for id in ids & numbers.keys():
            seq = numbers[id]
            found[id] = Held(seq, near[seq])
        if self._cache.count and len(found) < len(ids):
            found.update(self._cache.find(ids - found.keys()))
        return found

    def get(self, seqs: Sequence[int]) -> list[Held]:
        """Entries with their bodies, in order; those that are gone are left out."""
        near = self._near
        far = [seq for seq in seqs if seq not in near] if self._cache.count else ()
        if not far:
            return [Held(seq, near[seq]) for seq in seqs if seq in near]
        found = {held.seq: held for held in self._cache.get(far)}
        for seq in seqs:
            if seq in near:
                found[seq] = Held(seq, near[seq])
        return [found[seq] for seq in seqs if seq in found]

    def put(self, entries: Sequence[Entry], horizon: Moment) -> list[int]:
        """Add entries and return their numbers; those up to the horizon are near."""
        seqs = list(range(self._last + 1, self._last + 1 + len(entries)))
        self._last += len(entries)
        far = []
        for seq, entry in zip(seqs, entries, strict=True):
            if (entry.due_ms, seq) <= horizon and self._near_bytes < NEAR_BYTES_MAX:
                self._near[seq] = entry
                self._numbers[entry.id] = seq
                self._near_bytes += len(entry.body) + ENTRY_BYTES
            else:
                far.append(Held(seq, entry))
        if far:
            self._cache.put(far)
        return seqs

    def update(self, changed: Sequence[Held], horizon: Moment) -> None:
        """Write all but the bodies anew."""
        far = []
        for held in changed:
            if held.seq not in self._near:
                far.append(held)
            elif (held.entry.due_ms, held.seq) <= horizon:
                self._near[held.seq] = held.entry
            else:
                self._take(held.seq)
                self._cache.put([held])
        if far:
            self._cache.update(far)

    def remove(self, seqs: Sequence[int]) -> None:
        """Delete entries that are there."""
        far = [seq for seq in seqs if not self._take(seq)]
        if far:
            self._cache.remove(far)

    def spill(self) -> None:
        """Put all near ones to the far ones."""
        near = [Held(seq, entry) for seq, entry in self._near.items()]
        self._near.clear()
        self._numbers.clear()
        self._near_bytes = 0
        if near:
            self._cache.put(near)

    def next_due(self, after: Moment, until_ms: int, most: int) -> list[Moment]:
        """The next of the far ones after a moment, in order."""
        return self._cache.next_due(after, until_ms, most) if self._cache.count else []

    def first_far_ms(self) -> int | None:
        """The earliest due time of the far ones."""
        return self._cache.first_due_ms() if self._cache.count else None

    def _take(self, seq: int) -> bool:
        entry = self._near.pop(seq, None)
        if entry is None:
            return False
        del self._numbers[entry.id]
        self._near_bytes -= len(entry.body) + ENTRY_BYTES
        return True

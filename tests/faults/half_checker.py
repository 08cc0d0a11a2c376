"""A checker of half messages: what senders really did, and what readers saw of it.

done       ids whose local transaction has committed, says the database
seen       ids that readers of committed records found in the target, in order
undecided  ids that the service still holds when nothing moves any more
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class HalfAnomaly(NamedTuple):
    """One thing that must never be: half-visible, half-orphan or dup-effect."""

    name: str
    id: str


def half_anomalies(
    done: Iterable[str], seen: Sequence[str], undecided: Iterable[str] = ()
) -> list[HalfAnomaly]:
    """All that is wrong."""
    truth, counts = set(done), Counter(seen)
    found = [HalfAnomaly("half-visible", id) for id in counts if id not in truth]
    found += [HalfAnomaly("half-orphan", id) for id in truth if id not in counts]
    found += [HalfAnomaly("half-orphan", id) for id in undecided if id not in truth]
    found += [HalfAnomaly("dup-effect", id) for id, count in counts.items() if count > 1]
    return sorted(found)

"""Bodies that no record needs any more: found by the retention of their topics, and removed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.large.claims import Claims, Stored
from headrace.large.headers import KIND
from headrace.large.topic_facts import TopicFacts

if TYPE_CHECKING:
    from headrace.store import Store

# The tables whose rows may have a body elsewhere, in the order in which rows move on: one that
# moves between two looks is seen by the second.
_TABLES = ("headrace_spill", "headrace_retries", "headrace_dead_letters")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection has found."""

    garbage: list[Stored] = field(default_factory=list)
    kept: int = 0
    # Topics that keep records for ever, or by key: time says nothing about their bodies.
    timeless: frozenset[str] = frozenset()
    # Topics that the cluster does not have.
    unknown: frozenset[str] = frozenset()

    @property
    def body_bytes(self) -> int:
        """What the garbage takes up."""
        return sum(stored.body_bytes for stored in self.garbage)


def is_timeless(facts: TopicFacts | None) -> bool:
    """Whether a topic's records do not go by their age."""
    return facts is not None and (facts.is_compacted or facts.retention_ms < 0)


def is_garbage(stored: Stored, facts: TopicFacts | None, now_ms: int, grace_ms: int) -> bool:
    """Whether no record can be there that needs a body, by the settings of its topic (or none).

    A record goes with its segment, when the newest in that is old enough. A reader may be at work
    on the last of them, and brokers look for old segments now and then only: the grace is for both.
    """
    if is_timeless(facts):
        return False
    lives_ms = 0 if facts is None else facts.retention_ms + facts.segment_ms
    return stored.since_ms + lives_ms + grace_ms < now_ms


def find_garbage(
    claims: Claims,
    cluster: str,
    facts_of: Callable[[str], TopicFacts | None],
    now_ms: int,
    grace_ms: int,
    in_topic: Callable[[str], Collection[str]] | None = None,
) -> Collected:
    """Look at all bodies of a cluster; other clusters may use the same place.

    `in_topic` names the bodies that records of a timeless topic need; without it they all stay.
    """
    garbage: list[Stored] = []
    timeless: set[str] = set()
    unknown: set[str] = set()
    named: dict[str, Collection[str]] = {}
    kept = 0
    # Listed before records are looked at: what is written meanwhile is not in the list.
    for stored in [it for it in claims.list() if it.cluster == cluster]:
        facts = facts_of(stored.topic)
        if facts is None:
            unknown.add(stored.topic)
        if is_timeless(facts):
            timeless.add(stored.topic)
            is_dead = False
            if in_topic is not None and stored.since_ms + grace_ms < now_ms:
                if stored.topic not in named:
                    named[stored.topic] = in_topic(stored.topic)
                is_dead = stored.name not in named[stored.topic]
        else:
            is_dead = is_garbage(stored, facts, now_ms, grace_ms)
        if is_dead:
            garbage.append(stored)
        else:
            kept += 1
    return Collected(garbage, kept, frozenset(timeless), frozenset(unknown))


def find_unneeded(claims: Claims, now_ms: int, grace_ms: int, needed: Collection[str]) -> Collected:
    """The bodies of messages put away that no row has any more."""
    garbage: list[Stored] = []
    kept = 0
    for stored in claims.list():
        if stored.name not in needed and stored.since_ms + grace_ms < now_ms:
            garbage.append(stored)
        else:
            kept += 1
    return Collected(garbage, kept)


def needed_by(store: Store) -> set[str]:
    """The names of bodies that rows of a store have."""
    names: set[str] = set()
    with store.read() as tx:
        for table in _TABLES:
            rows = tx.execute(
                f"SELECT value FROM {table} WHERE headers LIKE :large",
                {"large": f"%{KIND}%"},
            )
            names.update(bytes(value).decode("utf-8", "replace") for (value,) in rows if value)
    return names

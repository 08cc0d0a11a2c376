"""Finds bodies that no record refers to any more, by the retention of their topics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.large.body_store import BodyStore, StoredBody
from headrace.large.headers import KIND
from headrace.large.topic_settings import TopicSettings

if TYPE_CHECKING:
    from headrace.store import Store

# The tables whose rows may refer to a body, in the order in which rows move between them: a row
# that moves while they are read is seen in the second table.
_TABLES = ("headrace_spill", "headrace_retries", "headrace_dead_letters")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection has found."""

    garbage: list[StoredBody] = field(default_factory=list)
    kept: int = 0
    # Topics that keep records forever, or by key: age tells nothing about their bodies.
    timeless: frozenset[str] = frozenset()
    # Topics that do not exist in the cluster.
    unknown: frozenset[str] = frozenset()

    @property
    def body_bytes(self) -> int:
        """The size of the garbage."""
        return sum(stored.body_bytes for stored in self.garbage)


def is_timeless(settings: TopicSettings | None) -> bool:
    """Whether a topic does not delete records by their age."""
    return settings is not None and (settings.is_compacted or settings.retention_ms < 0)


def is_garbage(
    stored: StoredBody, settings: TopicSettings | None, now_ms: int, grace_ms: int
) -> bool:
    """Whether no record can refer to a body any more, by the settings of its topic.

    A record is deleted with its segment, when the newest record in that is old enough. The grace is
    for readers that are still at work, and for brokers that delete segments only now and then.
    """
    if is_timeless(settings):
        return False
    kept_ms = 0 if settings is None else settings.retention_ms + settings.segment_ms
    return stored.since_ms + kept_ms + grace_ms < now_ms


def find_garbage(
    bodies: BodyStore,
    cluster: str,
    settings_of: Callable[[str], TopicSettings | None],
    now_ms: int,
    grace_ms: int,
    in_topic: Callable[[str], Collection[str]] | None = None,
) -> Collected:
    """Check all bodies of a cluster; other clusters may share the body store.

    `in_topic` returns the names of the bodies that a timeless topic refers to; without it they all
    stay.
    """
    garbage: list[StoredBody] = []
    timeless: set[str] = set()
    unknown: set[str] = set()
    referred: dict[str, Collection[str]] = {}
    kept = 0
    # List the bodies before reading records: a body written meanwhile is not in the list.
    for stored in [it for it in bodies.list() if it.cluster == cluster]:
        settings = settings_of(stored.topic)
        if settings is None:
            unknown.add(stored.topic)
        if is_timeless(settings):
            timeless.add(stored.topic)
            is_unneeded = False
            if in_topic is not None and stored.since_ms + grace_ms < now_ms:
                if stored.topic not in referred:
                    referred[stored.topic] = in_topic(stored.topic)
                is_unneeded = stored.name not in referred[stored.topic]
        else:
            is_unneeded = is_garbage(stored, settings, now_ms, grace_ms)
        if is_unneeded:
            garbage.append(stored)
        else:
            kept += 1
    return Collected(garbage, kept, frozenset(timeless), frozenset(unknown))


def find_unneeded(
    bodies: BodyStore, now_ms: int, grace_ms: int, needed: Collection[str]
) -> Collected:
    """Bodies of messages in the store that no row refers to any more."""
    garbage: list[StoredBody] = []
    kept = 0
    for stored in bodies.list():
        if stored.name not in needed and stored.since_ms + grace_ms < now_ms:
            garbage.append(stored)
        else:
            kept += 1
    return Collected(garbage, kept)


def needed_by(store: Store) -> set[str]:
    """The names of bodies that rows of a store refer to."""
    names: set[str] = set()
    with store.read() as tx:
        for table in _TABLES:
            rows = tx.execute(
                f"SELECT value FROM {table} WHERE headers LIKE :large",
                {"large": f"%{KIND}%"},
            )
            names.update(bytes(value).decode("utf-8", "replace") for (value,) in rows if value)
    return names

"""Large messages in an app: read by handlers and by tables, and their bodies removed in the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import Unavailable
from headrace.handlers.progress import NO_FLOOR
from headrace.large.errors import LargeBroken
from headrace.large.records import LargeRecord
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.message import ConsumedRecord
    from headrace.handlers.context import AppContext
    from headrace.handlers.lanes import Track
    from headrace.large.body_store import BodyStore, StoredBody
    from headrace.large.large import Large
    from headrace.large.receiver import LargeReceiver

# While a body cannot be reached, a table tries again after this long.
PAUSE_SECONDS = 0.5

_log = logging.getLogger("headrace.large")


class LargeMessages:
    """The large messages of one session; used by the session's thread alone.

    It puts whole messages in the place of their records, and holds back commits while a message
    is incomplete. `settings` are those of the handler's own consumer.
    """

    def __init__(
        self,
        context: AppContext,
        settings: Mapping[str, Any],
        tracks: Mapping[TopicPartition, Track],
    ) -> None:
        self._receiver = _receiver(context, settings)
        self._tracks = tracks
        self._has_floors = False
        # Where tracks end once what was admitted has been queued.
        self._ends: dict[Track, int] = {}

    def any_among(self, records: Sequence[ConsumedRecord]) -> bool:
        """Whether any of them may be large: it has headers, or others are incomplete."""
        if self._has_floors:
            return True
        # Asked of every record ever read: a generator would take twice as long.
        for record in records:  # noqa: SIM110
            if record.headers():
                return True
        return False

    def admit(self, by_track: dict[Track, list[ConsumedRecord]]) -> None:
        """Put whole messages in the place of their records."""
        for track, records in by_track.items():
            if not records:
                continue
            self._ends[track] = records[-1].offset()
            admitted = by_track[track] = self._receiver.admit(records)
            for record in admitted:
                if isinstance(record, LargeRecord) and record.first_offset < record.offset():
                    track.progress.keep_from(record.first_offset, record.offset())
        self._set_floors()

    def queued(self) -> None:
        """Note that what was admitted is queued, so that progress may pass its other records."""
        for track, last in self._ends.items():
            track.progress.pass_by(last)
        self._ends.clear()

    def expire(self) -> None:
        """Give up messages whose other records never came."""
        self._receiver.expire()
        if self._has_floors:
            self._set_floors()

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Forget partitions that are no longer read, or are read from another offset."""
        self._receiver.forget(places)

    def _set_floors(self) -> None:
        floors = self._receiver.floors()
        self._has_floors = bool(floors)
        for place, track in self._tracks.items():
            track.progress.floor = floors.get(place, NO_FLOOR)


class LargeValues:
    """The values of a table's records, which may be large; waits while a body is unavailable."""

    def __init__(self, context: AppContext, closing: threading.Event) -> None:
        self._receiver = _receiver(context, {})
        self._alarms = context.alarms
        self._closing = closing

    def __call__(self, record: ConsumedRecord) -> bytes | None:
        """All its bytes; LargeBroken for a record that has no value of its own."""
        if not record.headers():
            return record.value()
        found = self._receiver.admit([record])
        if not found:
            raise LargeBroken("it is a part of a message that a compacted topic cannot have")
        has_rung = False
        while True:
            try:
                return found[0].value()
            except Unavailable as problem:
                if not has_rung:
                    self._alarms.ring("table-waits", f"{record.topic()} waits: {problem}")
                has_rung = True
                if self._closing.wait(PAUSE_SECONDS):
                    raise


class LargeGarbage:
    """Removes the bodies that no record and no row of the store needs any more."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        # Topics that did not exist at the last collection.
        self._unknown: frozenset[str] = frozenset()

    def collect(self) -> None:
        """Collect once.

        Bodies of topics whose records do not expire by age are left to `headrace large gc --scan`.
        """
        from headrace.large.garbage import find_unneeded, needed_by
        from headrace.large.rows import row_bodies

        large, store = self._context.large, self._context.store
        assert large is not None
        if large.has_claims:
            self._collect_claims(large)
        if store is not None:
            kept = row_bodies(store)
            now_ms = self._context.clock.now_ms()
            found = find_unneeded(kept, now_ms, large.grace_ms, needed_by(store))
            _remove(kept, found.garbage)

    def _collect_claims(self, large: Large) -> None:
        from headrace.client.settings import translate
        from headrace.large.garbage import find_garbage

        settings_of = large.topic_settings(
            translate(self._context.client_settings("producer"), "producer")
        )
        now_ms = self._context.clock.now_ms()
        found = find_garbage(
            large.body_store, settings_of.cluster, settings_of, now_ms, large.grace_ms
        )
        # A broker that has just started may not know a topic yet; one missing twice is gone.
        doubtful = found.unknown - self._unknown
        self._unknown = found.unknown
        _remove(large.body_store, [it for it in found.garbage if it.topic not in doubtful])


def _receiver(context: AppContext, settings: Mapping[str, Any]) -> LargeReceiver:
    from headrace.client.settings import translate

    assert context.large is not None
    config = translate({**context.client_settings("consumer"), **settings}, "consumer")
    return context.large.receiver(config, context.alarms, context.clock)


def _remove(claims: BodyStore, garbage: Sequence[StoredBody]) -> None:
    claims.delete(stored.name for stored in garbage)
    if garbage:
        total = sum(stored.body_bytes for stored in garbage)
        _log.info("removed %d bodies, %d bytes", len(garbage), total)

"""Large messages among what a handler's runner polls, and how far it may commit meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.handlers.lanes import Record, Track
from headrace.handlers.progress import NO_FLOOR
from headrace.large.records import LargeRecord
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.handlers.context import AppContext


class Incoming:
    """The large messages of one session; used by the runner's thread alone."""

    def __init__(
        self,
        context: AppContext,
        settings: Mapping[str, Any],
        tracks: Mapping[TopicPartition, Track],
    ) -> None:
        """`settings` are those of the handler's own consumer."""
        from headrace.client.settings import translate

        assert context.large is not None
        config = translate({**context.client_settings("consumer"), **settings}, "consumer")
        self._receiver = context.large.receiver(config, context.alarms, context.clock)
        self._tracks = tracks
        self._has_floors = False
        # Where tracks end, once what was admitted has been queued.
        self._ends: dict[Track, int] = {}

    def any_among(self, records: Sequence[Record]) -> bool:
        """Whether any of them may be large: it has headers, or others are not whole yet."""
        if self._has_floors:
            return True
        # Asked of every record ever read: a generator would take twice as long.
        for record in records:  # noqa: SIM110
            if record.headers():
                return True
        return False

    def admit(self, by_track: dict[Track, list[Record]]) -> None:
        """Put whole messages in the place of their records."""
        for track, records in by_track.items():
            if not records:
                continue
            self._ends[track] = records[-1].offset()
            admitted = by_track[track] = self._receiver.admit(records)
            for record in admitted:
                if isinstance(record, LargeRecord) and record.first_offset < record.offset():
                    track.progress.hold(record.first_offset, record.offset())
        self._set_floors()

    def queued(self) -> None:
        """What was admitted is in its lanes, so what lies behind it is known to be passed."""
        for track, last in self._ends.items():
            track.progress.pass_by(last)
        self._ends.clear()

    def expire(self) -> None:
        """Give up what nobody finishes."""
        self._receiver.expire()
        if self._has_floors:
            self._set_floors()

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """These partitions are not read any more, or from another place."""
        self._receiver.forget(places)

    def _set_floors(self) -> None:
        floors = self._receiver.floors()
        self._has_floors = bool(floors)
        for place, track in self._tracks.items():
            track.progress.floor = floors.get(place, NO_FLOOR)

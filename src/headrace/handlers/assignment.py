"""The partitions that a handler has now: assigned, revoked, and committed as far as is safe."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import Unavailable
from headrace.handlers.lanes import Track
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.consumer.consumer import Consumer
    from headrace.client.message import ConsumedRecord
    from headrace.handlers.context import AppContext
    from headrace.handlers.failures import Failures
    from headrace.handlers.scheduler import Scheduler

# A rebalance waits this long for the store to answer, well below max.poll.interval.ms.
STORE_WAIT_SECONDS = 60.0
STORE_PAUSE_SECONDS = 0.5

T = TypeVar("T")

_log = logging.getLogger("headrace.handlers")


class Assignment:
    """Tracks of the assigned partitions; used by the session's thread alone."""

    def __init__(
        self,
        scheduler: Scheduler,
        failures: Failures,
        consumer: Consumer,
        context: AppContext,
        stop: threading.Event,
    ) -> None:
        self.tracks: dict[TopicPartition, Track] = {}
        self._scheduler = scheduler
        self._failures = failures
        self._spec = scheduler.spec
        self._consumer = consumer
        self._context = context
        self._stop = stop
        topics = self._spec.topics
        # Asking a record for its topic makes a new string each time.
        self._single_topic = topics[0] if len(topics) == 1 and topics[0][0] != "^" else ""
        self._committed: dict[Track, int] = {}
        self._commits = self._spec.delivery != "at_most_once" and self._spec.once != "transaction"

    def assigned(self, partitions: Iterable[Any]) -> list[Any]:
        """Start with partitions; returns them, each with its start offset where it is known."""
        started = list(partitions)
        places = [(partition.topic, partition.partition) for partition in started]
        epochs: dict[TopicPartition, int] = {}
        bases: dict[TopicPartition, int] = {}
        if self._spec.once == "offsets":
            offsets = self._context.need_store("once='offsets'").offsets
            kept = self.wait_for_store(lambda: offsets.load(self._spec.group, places))
            for partition, place in zip(started, places, strict=True):
                epochs[place] = kept[place].epoch
                next_offset = kept[place].next_offset
                if next_offset is not None:
                    partition.offset = bases[place] = next_offset
        for topic in sorted({topic for topic, _ in places}):
            numbers = [partition for name, partition in places if name == topic]
            self.wait_for_store(lambda: self._failures.assigned(topic, numbers))  # noqa: B023
        for place in places:
            self.tracks[place] = Track(*place, epochs.get(place, 0), bases.get(place, 0))
        return started

    def restart(self, track: Track) -> Track:
        """A new track for a partition whose offsets went back, as after its topic was recreated."""
        _log.warning(
            "%s: the offsets of %s/%s went back; was the topic recreated?",
            self._spec.name, track.topic, track.partition,
        )  # fmt: skip
        self._scheduler.close([track], self._spec.drain_ms)
        self._committed.pop(track, None)
        base = max(track.base, track.progress.next_offset)
        new = Track(track.topic, track.partition, track.epoch, base)
        self.tracks[track.topic, track.partition] = new
        return new

    def revoked(self, partitions: Iterable[Any], drain_ms: int) -> None:
        """Let what runs end within the bound, commit what is safe, and forget them."""
        tracks = self.tracks_of(partitions)
        if not self._scheduler.close(tracks, drain_ms):
            _log.warning(
                "%s: a handler still runs on partitions that were taken away; "
                "what it finishes now is not committed",
                self._spec.name,
            )
        self.commit(tracks, wait=True)
        self._forget(tracks)

    def lost(self, partitions: Iterable[Any]) -> None:
        """Forget partitions that already have another owner, without a commit."""
        tracks = self.tracks_of(partitions)
        self._scheduler.close(tracks, 0)
        self._forget(tracks)

    def by_track(self, records: Sequence[ConsumedRecord]) -> dict[Track, list[ConsumedRecord]]:
        """Records by their partition; those of partitions that were taken away are left out."""
        sorted_: dict[Track, list[ConsumedRecord]] = {}
        tracks = self.tracks
        last_topic: str | None = None
        last_partition = -1
        into: list[ConsumedRecord] | None = None
        single = self._single_topic
        for record in records:
            topic, partition = single or record.topic(), record.partition()
            if partition != last_partition or topic != last_topic:
                last_topic, last_partition = topic, partition
                track = tracks.get((topic, partition))
                into = None if track is None else sorted_.setdefault(track, [])
            if into is not None:
                into.append(record)
        return sorted_

    def commit_first(self, sorted_: dict[Track, list[ConsumedRecord]]) -> None:
        """Commit records before they are run: they are lost rather than repeated."""
        self._consumer.commit_sync(
            {
                (track.topic, track.partition): records[-1].offset() + 1
                for track, records in sorted_.items()
                if records
            }
        )

    def commit(self, tracks: Iterable[Track] | None = None, wait: bool = False) -> None:
        """Commit the safe prefix of each partition that has moved."""
        if not self._commits:
            return
        moved: dict[Track, int] = {}
        with self._scheduler.lock:
            for track in self.tracks.values() if tracks is None else tracks:
                offset = track.progress.safe_offset()
                if offset > self._committed.get(track, -1):
                    moved[track] = offset
        if moved:
            self._committed.update(moved)
            places = {(track.topic, track.partition): at for track, at in moved.items()}
            self._send_commit(places, wait)

    def stuck(self, messages_max: int) -> set[TopicPartition]:
        """Partitions where more than `messages_max` messages are behind an unfinished one."""
        with self._scheduler.lock:
            return {
                place
                for place, track in self.tracks.items()
                if track.progress.unsafe - track.messages > messages_max
            }

    def _send_commit(self, places: dict[TopicPartition, int], wait: bool) -> None:
        from confluent_kafka import KafkaException

        try:
            if wait:
                self._consumer.commit_sync(places)
            else:
                self._consumer.commit_async(places, self._on_commit)
        except KafkaException as error:
            # The next owner repeats what was not committed; the inbox knows it if there is one.
            _log.warning("%s: offsets were not committed: %s", self._spec.name, error)

    def _on_commit(self, error: Any, _places: Any) -> None:
        if error is not None:
            _log.warning("%s: offsets were not committed: %s", self._spec.name, error)
            # Whatever was refused is sent again with the next commit.
            self._committed.clear()

    def tracks_of(self, partitions: Iterable[Any]) -> list[Track]:
        """The tracks of partitions."""
        places = [(partition.topic, partition.partition) for partition in partitions]
        return [self.tracks[place] for place in places if place in self.tracks]

    def _forget(self, tracks: Iterable[Track]) -> None:
        for track in tracks:
            del self.tracks[track.topic, track.partition]
            self._committed.pop(track, None)
            # Only now: what was still running had to know which keys are parked.
            self._failures.revoked(track.topic, [track.partition])

    def wait_for_store(self, question: Callable[[], T]) -> T:
        """Call something that needs the store; while that is unavailable, wait and try again."""
        give_up_at = monotonic() + STORE_WAIT_SECONDS
        while True:
            try:
                return question()
            except Exception as error:
                is_over = monotonic() > give_up_at or self._stop.is_set()
                if is_over or not isinstance(error, Unavailable):
                    raise
                self._context.alarms.ring(
                    "store-away", f"{self._spec.name} waits for the store: {error}",
                    handler=self._spec.name,
                )  # fmt: skip
                self._stop.wait(STORE_PAUSE_SECONDS)

"""What is parked or dead in the assigned partitions, in memory: no message needs a query.

A message waits when its lane has a message in the retry table. A record that was put away before a
crash, but whose offset was not yet committed, is consumed again and must not run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count

from headrace.client.message import Message
from headrace.protocol.partitions import TopicPartition

# Records that were put away are expected again for this long after an assignment.
REPEATS_MS = 3_600_000
# Messages are read out of order by at most as many as are in memory at once.
NEAR_MESSAGES = 10_000
# A waiting record is at most this far behind the others; see GAP_MESSAGES_MAX.
FAR_MESSAGES = 100_000

# What a parked message holds up: its key, its whole partition (None), or only its own offset.
LaneKey = tuple[str, int, bytes | int | None]


class ParkedLanes:
    """The lanes of one handler that wait in the retry table; safe from many threads."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._lock = threading.Lock()
        # Each waiting lane with the number of its last parking.
        self._waiting: dict[LaneKey, int] = {}
        self._parkings = count(1)
        self._repeats = Repeats()
        self._repeats_until_ms = 0

    def lane(self, topic: str, partition: int, offset: int, key: bytes | None) -> LaneKey:
        """What a message with this key would hold up when it is parked."""
        if self._order == "partition":
            return (topic, partition, None)
        if self._order != "none" and key is not None:
            return (topic, partition, key)
        return (topic, partition, offset)

    def lane_of(self, message: Message) -> LaneKey:
        """What a message would hold up when it is parked."""
        return self.lane(message.topic, message.partition, message.offset, message.key)

    def assigned(
        self,
        topic: str,
        partitions: Iterable[int],
        parked: Iterable[tuple[int, int, bytes | None]],
        dead: Iterable[tuple[int, int]],
        now_ms: int,
    ) -> None:
        """Learn what is parked and dead in newly assigned partitions."""
        # Each may be consumed again, and by then a parked one may have become a dead letter.
        put_away = set(dead)
        with self._lock:
            for partition, offset, key in parked:
                put_away.add((partition, offset))
                self._wait(self.lane(topic, partition, offset, key))
            for number in partitions:
                offsets = [offset for partition, offset in put_away if partition == number]
                self._repeats.add(topic, number, offsets)
            self._repeats_until_ms = now_ms + REPEATS_MS

    def revoked(self, topic: str, partitions: Iterable[int]) -> None:
        """Forget partitions that have another owner now."""
        gone = {(topic, partition) for partition in partitions}
        with self._lock:
            self._waiting = {
                lane: parking for lane, parking in self._waiting.items() if lane[:2] not in gone
            }
            for place in gone:
                self._repeats.forget(place)

    def any_at(self, now_ms: int) -> bool:
        """Whether anything is known at all; if not, `is_waiting` need not be asked."""
        if self._repeats and now_ms > self._repeats_until_ms:
            self._repeats = Repeats()
        return bool(self._waiting or self._repeats)

    def is_waiting(self, message: Message) -> bool:
        """Whether the message's lane waits, or the message was put away before."""
        if self._repeats:
            with self._lock:
                if self._repeats.has((message.topic, message.partition), message.offset):
                    return True
        return self.lane_of(message) in self._waiting

    def park(self, message: Message) -> None:
        """Note that a message was parked, so that its lane waits."""
        with self._lock:
            self._wait(self.lane_of(message))

    def seen_again(self, message: Message, *, is_free: bool) -> None:
        """Note that a held message was looked up; `is_free` if nothing of it was stored."""
        with self._lock:
            self._repeats.done((message.topic, message.partition), message.offset)
            if is_free:
                self._waiting.pop(self.lane_of(message), None)

    def waiting(self) -> dict[LaneKey, int]:
        """The waiting lanes now, for `release`."""
        with self._lock:
            return dict(self._waiting)

    def release(self, before: dict[LaneKey, int], parked: set[LaneKey]) -> None:
        """Release lanes that waited at a time `before`, unless something of them is `parked`."""
        with self._lock:
            for lane, parking in before.items():
                # One that was parked again meanwhile has another number.
                if lane not in parked and self._waiting.get(lane) == parking:
                    del self._waiting[lane]

    def _wait(self, lane: LaneKey) -> None:
        if not isinstance(lane[2], int):
            self._waiting[lane] = next(self._parkings)


class Repeats:
    """Offsets that may be consumed again, each forgotten once it cannot be any more; pure."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, set[int]] = {}
        self._last: dict[TopicPartition, int] = {}
        self._started: set[TopicPartition] = set()

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def add(self, topic: str, partition: int, offsets: Iterable[int]) -> None:
        """Expect these offsets of a partition that was just assigned."""
        expected = set(offsets)
        self._started.discard((topic, partition))
        if expected:
            self._offsets[topic, partition] = expected
            self._last[topic, partition] = max(expected)

    def forget(self, place: TopicPartition) -> None:
        """Expect nothing more of a partition."""
        self._offsets.pop(place, None)

    def done(self, place: TopicPartition, offset: int) -> None:
        """Note that an offset was consumed again, which happens once."""
        offsets = self._offsets.get(place)
        if offsets is not None:
            offsets.discard(offset)
            if not offsets:
                self.forget(place)

    def has(self, place: TopicPartition, offset: int) -> bool:
        """Whether this record was put away before."""
        offsets = self._offsets.get(place)
        if offsets is None:
            return False
        is_known = offset in offsets
        if place not in self._started:
            # The first record shows where the partition continues: nothing far below follows.
            self._started.add(place)
            offsets = {old for old in offsets if old > offset - NEAR_MESSAGES}
            self._offsets[place] = offsets
        if not offsets or offset > self._last[place] + FAR_MESSAGES:
            self.forget(place)
        return is_known

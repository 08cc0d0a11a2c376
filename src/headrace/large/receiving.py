"""Receiving large messages: chunks put together, claim checks opened, the lost ones given up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.large.bodies import Body, BrokenBody, ClaimedBody, SpooledBody
from headrace.large.headers import (
    CHUNK,
    CLAIM,
    KEPT,
    BadHeaders,
    Chunk,
    kind_of,
    read_chunk,
    read_claim,
)
from headrace.large.reassembly import Limits, Open, Reassembly
from headrace.large.records import LargeRecord
from headrace.large.spool import Room, Spool
from headrace.large.states import Kind
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.message import ConsumedRecord
    from headrace.large.claims import Claims
    from headrace.telemetry.alarms import Alarms

# The records of a partition between two offsets.
Recall = Callable[[str, int, int, int], Iterator[Any]]

# Half of the time after which a member that does not poll is out of its group, by default.
RECALL_MS_MAX = 150_000


class _Partition:
    def __init__(self, limits: Limits) -> None:
        self.reassembly = Reassembly(limits)
        self.spools: dict[str, Spool] = {}
        # The last chunks, which have the sender's headers.
        self.ends: dict[str, Any] = {}
        self.next_offset = 0

    def drop(self, id: str) -> None:
        self.spools.pop(id, None)
        self.ends.pop(id, None)


class LargeReceiver:
    """The large messages of one consumer; used by the thread that polls."""

    def __init__(
        self,
        limits: Limits,
        room: Room,
        claims: Callable[[], Claims],
        recall: Recall,
        alarms: Alarms,
        clock: Clock,
        recall_ms_max: int = RECALL_MS_MAX,
    ) -> None:
        """`recall_ms_max`: one call reads earlier chunks for so long, all together."""
        self._recall_ms_max = recall_ms_max
        self._recall_until_ms = 0
        self._limits = limits
        self._room = room
        self._claims = claims
        self._recall = recall
        self._alarms = alarms
        self._clock = clock
        self._partitions: dict[TopicPartition, _Partition] = {}
        # What the last call could not end.
        self._admitted: list[ConsumedRecord] = []
        self._waiting: list[ConsumedRecord] = []

    def admit(self, records: Sequence[ConsumedRecord]) -> list[ConsumedRecord]:
        """The records to hand on: ordinary ones, and messages that are whole with these.

        NoRoom if the disk is full, RecallFailed: the next call goes on where this one ended.
        """
        self._waiting += records
        self._recall_until_ms = self._clock.monotonic_ms() + self._recall_ms_max
        done = 0
        try:
            for record in self._waiting:
                headers = record.headers()
                admitted: ConsumedRecord | None = record
                if headers:
                    admitted = self._admit(record, kind_of(headers))
                if admitted is not None:
                    self._admitted.append(admitted)
                done += 1
        finally:
            del self._waiting[:done]
        if self._partitions:
            self._note_places(records)
        self.expire()
        found, self._admitted = self._admitted, []
        return found

    def floors(self) -> dict[TopicPartition, int]:
        """Where a reader would have to start again, of partitions with unfinished messages."""
        return {
            place: floor
            for place, partition in self._partitions.items()
            if (floor := partition.reassembly.floor) is not None
        }

    def left(self) -> list[ConsumedRecord]:
        """What a call that failed has left for the next one, in order."""
        return [*self._admitted, *self._waiting]

    def expire(self) -> None:
        """Give up what nobody finishes, with an alarm each."""
        for place, partition in self._partitions.items():
            if partition.reassembly:
                now_ms = self._clock.monotonic_ms()
                for message in partition.reassembly.give_up(now_ms, partition.next_offset):
                    partition.drop(message.id)
                    self._ring_incomplete(place, message, now_ms)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """These partitions are not read any more, or from another place."""
        gone = set(places)
        for place in gone:
            self._partitions.pop(place, None)
        for records in (self._admitted, self._waiting):
            records[:] = [it for it in records if (it.topic(), it.partition()) not in gone]

    def close(self) -> None:
        """Let go of everything."""
        self._partitions.clear()

    def _note_places(self, records: Sequence[ConsumedRecord]) -> None:
        for record in records:
            partition = self._partitions.get((record.topic(), record.partition()))
            if partition is not None:
                partition.next_offset = record.offset() + 1

    def _admit(self, record: ConsumedRecord, kind: str | None) -> ConsumedRecord | None:
        """What to hand on in place of a record, if anything."""
        if kind is None:
            return record
        if kind == CHUNK:
            return self._chunk(record)
        if kind in (CLAIM, KEPT):
            return LargeRecord(record, self._claimed(record))
        return LargeRecord(record, self._broken(record, f"it is neither chunk nor claim: {kind}"))

    def _chunk(self, record: ConsumedRecord) -> LargeRecord | None:
        place = record.topic(), record.partition()
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = _Partition(self._limits)
        try:
            chunk = read_chunk(record.headers() or ())
        except BadHeaders as problem:
            return LargeRecord(record, self._broken(record, str(problem)))
        was = partition.reassembly.get(chunk.id)
        first_offset = record.offset() if was is None else was.offset
        try:
            return self._take(partition, record, chunk)
        except BaseException:
            # What was noted and what was kept may differ now; the topic still has all of it.
            now_ms = self._clock.monotonic_ms()
            partition.reassembly.begin_again(chunk.id, first_offset, now_ms)
            partition.drop(chunk.id)
            raise

    def _take(
        self, partition: _Partition, record: ConsumedRecord, chunk: Chunk
    ) -> LargeRecord | None:
        data = record.value() or b""
        is_intact = hashlib.sha256(data).digest() == chunk.digest
        was = partition.reassembly.get(chunk.id)
        first_offset = record.offset() if was is None else was.offset
        step = partition.reassembly.add(
            chunk, record.offset(), len(data), is_intact, self._clock.monotonic_ms()
        )
        if chunk.end is not None:
            partition.ends.setdefault(chunk.id, record)
        if step.kind in (Kind.KEEP, Kind.WHOLE, Kind.RECALL):
            spool = partition.spools.get(chunk.id)
            if spool is None:
                spool = partition.spools[chunk.id] = Spool(self._room)
            spool.put(chunk.index, data)
        if step.kind == Kind.WHOLE:
            end = partition.ends[chunk.id]
            spool = partition.spools[chunk.id]
            most = self._limits.load_bytes_max
            stored = SpooledBody(spool, chunk.codec, spool.body_bytes, most)
            partition.drop(chunk.id)
            return LargeRecord(end, stored, record.offset(), first_offset)
        if step.kind == Kind.BROKEN:
            end = partition.ends[chunk.id]
            partition.drop(chunk.id)
            return LargeRecord(
                end, self._broken(record, step.reason), record.offset(), first_offset
            )
        if step.kind == Kind.RECALL:
            return self._take_again(partition, record, chunk)
        if step.kind == Kind.REPEAT and (was is None or was.broken):
            partition.drop(chunk.id)
        return None

    def _take_again(
        self, partition: _Partition, record: ConsumedRecord, chunk: Chunk
    ) -> LargeRecord | None:
        """Read earlier chunks once more, up to the record that made that necessary."""
        assert chunk.end is not None
        start, end = chunk.end.first_offset, record.offset()
        for earlier in self._recall(record.topic(), record.partition(), start, end):
            if self._clock.monotonic_ms() > self._recall_until_ms:
                return self._too_far_back(partition, record, chunk)
            headers = earlier.headers()
            if not headers or kind_of(headers) != CHUNK:
                continue
            try:
                found = read_chunk(headers)
            except BadHeaders:
                continue
            if found.id == chunk.id:
                whole = self._take(partition, earlier, found)
                if whole is not None:
                    return LargeRecord(record, whole.body, end, whole.first_offset)
        return None

    def _too_far_back(
        self, partition: _Partition, record: ConsumedRecord, chunk: Chunk
    ) -> LargeRecord:
        """Give up before the group takes this reader for dead, and its successor does the same."""
        assert chunk.end is not None
        partition.reassembly.set_aside(chunk.id)
        partition.drop(chunk.id)
        reason = (
            f"it begins at offset {chunk.end.first_offset}, and what lies between was not read in "
            f"{self._recall_ms_max // 1000} s; a higher max.poll.interval.ms leaves more time"
        )
        return LargeRecord(record, self._broken(record, reason))

    def _claimed(self, record: ConsumedRecord) -> Body:
        try:
            claim = read_claim(record.headers() or (), record.value())
        except BadHeaders as problem:
            return self._broken(record, str(problem))
        if claim.body_bytes > self._limits.bytes_max:
            return self._broken(record, f"it is larger than {self._limits.bytes_max} bytes")
        return ClaimedBody(claim, self._claims, self._limits.load_bytes_max)

    def _broken(self, record: ConsumedRecord, reason: str) -> BrokenBody:
        source = f"{record.topic()}/{record.partition()}/{record.offset()}"
        self._alarms.ring(
            "large-broken", f"the large message at {source} is broken: {reason}", source=source
        )
        return BrokenBody(f"a large message is broken: {reason}")

    def _ring_incomplete(self, place: TopicPartition, message: Open, now_ms: int) -> None:
        topic, number = place
        self._alarms.ring(
            "large-incomplete",
            f"a large message at {topic}/{number}/{message.offset} is not whole: "
            f"{len(message.digests)} chunks came, the last {(now_ms - message.last_ms) // 1000} s "
            "ago; it is given up unless its end comes",
            source=f"{topic}/{number}/{message.offset}",
            id=message.id,
            chunks=len(message.digests),
            bytes=message.body_bytes,
        )

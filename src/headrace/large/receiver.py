"""Receives large messages: puts chunks together, opens claim checks, gives up unfinished ones."""

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
from headrace.large.reassembly_machine import Effect, OpenMessage, Reassembly, ReassemblyLimits
from headrace.large.records import LargeRecord
from headrace.large.spool import MemoryBudget, Spool
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.message import ConsumedRecord
    from headrace.large.body_store import BodyStore
    from headrace.telemetry.alarms import Alarms

# Reads the records of a partition between two offsets.
Recall = Callable[[str, int, int, int], Iterator[Any]]

# Half of the default of max.poll.interval.ms, after which a group removes a member.
RECALL_MS_MAX = 150_000


class _Partition:
    def __init__(self, limits: ReassemblyLimits) -> None:
        self.reassembly = Reassembly(limits)
        self.spools: dict[str, Spool] = {}
        # The records of last chunks, which carry the sender's headers.
        self.ends: dict[str, Any] = {}
        self.next_offset = 0

    def drop(self, id: str) -> None:
        self.spools.pop(id, None)
        self.ends.pop(id, None)


class LargeReceiver:
    """The large messages of one consumer; for the thread that polls."""

    def __init__(
        self,
        limits: ReassemblyLimits,
        memory: MemoryBudget,
        claims: Callable[[], BodyStore],
        recall: Recall,
        alarms: Alarms,
        clock: Clock,
        recall_ms_max: int = RECALL_MS_MAX,
    ) -> None:
        """`recall_ms_max` limits how long one call of `admit` reads earlier chunks."""
        self._recall_ms_max = recall_ms_max
        self._recall_until_ms = 0
        self._limits = limits
        self._memory = memory
        self._claims = claims
        self._recall = recall
        self._alarms = alarms
        self._clock = clock
        self._partitions: dict[TopicPartition, _Partition] = {}
        # Left over from a call that failed.
        self._admitted: list[ConsumedRecord] = []
        self._waiting: list[ConsumedRecord] = []

    def admit(self, records: Sequence[ConsumedRecord]) -> list[ConsumedRecord]:
        """The records to hand on: ordinary ones, and messages that these records complete.

        After NoDiskSpace or RecallFailed, the next call continues where this one stopped.
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
            self._note_offsets(records)
        self.expire()
        found, self._admitted = self._admitted, []
        return found

    def floors(self) -> dict[TopicPartition, int]:
        """Where a restarted reader must start, for partitions with unfinished messages."""
        return {
            place: floor
            for place, partition in self._partitions.items()
            if (floor := partition.reassembly.floor) is not None
        }

    def left(self) -> list[ConsumedRecord]:
        """The records that a failed call has left for the next one, in order."""
        return [*self._admitted, *self._waiting]

    def expire(self) -> None:
        """Give up unfinished messages beyond the limits, with an alarm for each."""
        for place, partition in self._partitions.items():
            if partition.reassembly:
                now_ms = self._clock.monotonic_ms()
                for message in partition.reassembly.give_up(now_ms, partition.next_offset):
                    partition.drop(message.id)
                    self._ring_incomplete(place, message, now_ms)

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Drop partitions that are not read any more, or from another offset."""
        gone = set(places)
        for place in gone:
            self._partitions.pop(place, None)
        for records in (self._admitted, self._waiting):
            records[:] = [it for it in records if (it.topic(), it.partition()) not in gone]

    def close(self) -> None:
        """Drop everything."""
        self._partitions.clear()

    def _note_offsets(self, records: Sequence[ConsumedRecord]) -> None:
        for record in records:
            partition = self._partitions.get((record.topic(), record.partition()))
            if partition is not None:
                partition.next_offset = record.offset() + 1

    def _admit(self, record: ConsumedRecord, kind: str | None) -> ConsumedRecord | None:
        """What to hand on in place of a record; None for nothing."""
        if kind is None:
            return record
        if kind == CHUNK:
            return self._chunk(record)
        if kind in (CLAIM, KEPT):
            return LargeRecord(record, self._claimed(record))
        return LargeRecord(
            record, self._broken(record, f"its kind {kind!r} is neither chunk nor claim")
        )

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
            # Noted and kept chunks may differ now, so start again: the topic still has them all.
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
        outcome = partition.reassembly.add(
            chunk, record.offset(), len(data), is_intact, self._clock.monotonic_ms()
        )
        if chunk.end is not None:
            partition.ends.setdefault(chunk.id, record)
        if outcome.effect in (Effect.KEEP, Effect.WHOLE, Effect.RECALL):
            spool = partition.spools.get(chunk.id)
            if spool is None:
                spool = partition.spools[chunk.id] = Spool(self._memory)
            spool.put(chunk.index, data)
        if outcome.effect == Effect.WHOLE:
            end = partition.ends[chunk.id]
            spool = partition.spools[chunk.id]
            load_bytes_max = self._limits.load_bytes_max
            stored = SpooledBody(spool, chunk.codec, spool.body_bytes, load_bytes_max)
            partition.drop(chunk.id)
            return LargeRecord(end, stored, record.offset(), first_offset)
        if outcome.effect == Effect.BROKEN:
            end = partition.ends[chunk.id]
            partition.drop(chunk.id)
            return LargeRecord(
                end, self._broken(record, outcome.reason), record.offset(), first_offset
            )
        if outcome.effect == Effect.RECALL:
            return self._recall_chunks(partition, record, chunk)
        if outcome.effect == Effect.DROP and (was is None or was.broken):
            partition.drop(chunk.id)
        return None

    def _recall_chunks(
        self, partition: _Partition, record: ConsumedRecord, chunk: Chunk
    ) -> LargeRecord | None:
        """Read earlier chunks again, up to the last one."""
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
        """Give up before the group removes this reader, whose successor would try the same."""
        assert chunk.end is not None
        partition.reassembly.set_aside(chunk.id)
        partition.drop(chunk.id)
        reason = (
            f"it begins at offset {chunk.end.first_offset}, which is more than "
            f"{self._recall_ms_max // 1000} s of reading back; raise max.poll.interval.ms"
        )
        return LargeRecord(record, self._broken(record, reason))

    def _claimed(self, record: ConsumedRecord) -> Body:
        try:
            claim = read_claim(record.headers() or (), record.value())
        except BadHeaders as problem:
            return self._broken(record, str(problem))
        if claim.body_bytes > self._limits.bytes_max:
            return self._broken(
                record, f"it is too large; the limit is {self._limits.bytes_max} bytes"
            )
        return ClaimedBody(claim, self._claims, self._limits.load_bytes_max)

    def _broken(self, record: ConsumedRecord, reason: str) -> BrokenBody:
        source = f"{record.topic()}/{record.partition()}/{record.offset()}"
        self._alarms.ring(
            "large-broken", f"the large message at {source} is broken: {reason}", source=source
        )
        return BrokenBody(f"a large message is broken: {reason}")

    def _ring_incomplete(self, place: TopicPartition, message: OpenMessage, now_ms: int) -> None:
        topic, number = place
        silent_s = (now_ms - message.last_ms) // 1000
        self._alarms.ring(
            "large-incomplete",
            f"the large message at {topic}/{number}/{message.offset} is incomplete: "
            f"{len(message.digests)} chunks came, the last one {silent_s} s ago; "
            "it is given up unless its last chunk comes",
            source=f"{topic}/{number}/{message.offset}",
            id=message.id,
            chunks=len(message.digests),
            bytes=message.body_bytes,
        )

"""Lanes: which message may run now, so that order holds and every partition gets its turn.

Pure: no thread, no clock, no consumer. A message waits on a lane: one per key, one per partition
or, without order, one that many workers take from at once. A lane with order is given to one
worker at a time, with as many of its messages as the worker asks for.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import count, repeat

from headrace.client.message import ConsumedRecord
from headrace.handlers.progress import Progress

# Lanes of keys are reused, because making one takes as long as all its other work.
SPARE_LANES = 1000

# The lane, the sequence number in its partition, and the record.
Item = tuple["Lane", int, ConsumedRecord]


class Lane:
    """Messages that run one after the other; `shared` lanes have no order."""

    __slots__ = ("busy", "items", "key", "listed", "shared", "track", "waits")

    def __init__(self, track: Track, key: object, shared: bool) -> None:
        self.track = track
        self.key = key
        self.shared = shared
        self.items: deque[Item] = deque()
        self.busy = False
        self.waits = False
        self.listed = False


class Track:
    """One assignment of one partition; a later assignment is another Track.

    That is the fence: what a worker reports late changes the old object, which is never read.
    """

    __slots__ = (
        "base", "busy", "bytes", "epoch", "in_ring", "lanes", "open", "partition", "progress",
        "queued", "ready", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, epoch: int = 0, base: int = 0) -> None:
        """`base` is the offset to start from, as far as it is known."""
        self.topic = topic
        self.partition = partition
        self.epoch = epoch
        self.base = base
        self.progress = Progress()
        self.lanes: dict[object, Lane] = {}
        self.ready: deque[Lane] = deque()
        self.queued = 0
        self.busy = 0
        self.bytes = 0
        self.open = True
        self.in_ring = False

    @property
    def messages(self) -> int:
        """Messages held in memory: waiting or at work."""
        return self.queued + self.busy


class Lanes:
    """All lanes of one handler."""

    def __init__(self, order: str, overhead_bytes: int = 0) -> None:
        """A record counts with its length and `overhead_bytes`."""
        self._by_key = order in ("key", "latest")
        self._shared = order == "none"
        self._whole = order == "latest"
        self._overhead_bytes = overhead_bytes
        self._ring: deque[Track] = deque()
        self._delayed: list[tuple[int, int, Lane, Item | None]] = []
        self._order = count()
        self._spare: list[Lane] = []
        self.queued = 0
        self.busy = 0
        self.bytes = 0
        self.ready = 0

    @property
    def messages(self) -> int:
        """Messages held in memory: waiting or at work."""
        return self.queued + self.busy

    def add(self, track: Track, records: Sequence[ConsumedRecord]) -> None:
        """Queue records of a partition in the order of their offsets."""
        sequences = track.progress.arrive_all([record.offset() for record in records])
        if self._by_key:
            self._add_by_key(track, records, sequences)
        elif records:
            lane = track.lanes.get(None) or self._new_lane(track, None)
            lane.items.extend(zip(repeat(lane), sequences, records))
            if lane.listed:
                self.ready += len(records)
            elif not lane.busy and not lane.waits:
                self._list(lane)
        size = self._size(records)
        track.queued += len(records)
        track.bytes += size
        self.queued += len(records)
        self.bytes += size

    def take(self, limit: int) -> list[Item]:
        """Up to `limit` messages for one worker, from all partitions in turn.

        The lanes they come from are busy until `settle`. The messages of a lane that has order are
        together, and in it.
        """
        chunk: list[Item] = []
        ring = self._ring
        share = max(1, limit // len(ring)) if ring else 0
        while ring and len(chunk) < limit:
            track = ring.popleft()
            before = len(chunk)
            self._take_from(track, chunk, min(share, limit - before))
            taken = len(chunk) - before
            track.queued -= taken
            track.busy += taken
            if track.ready:
                ring.append(track)
            else:
                track.in_ring = False
        self.queued -= len(chunk)
        self.busy += len(chunk)
        return chunk

    def settle(self, chunk: list[Item], done: int, retry_at_ms: int | None = None) -> None:
        """End a worker's turn: the first `done` are finished, the rest go back to their lanes.

        With `retry_at_ms` the message at `done` waits until then, and so does its lane if it has
        order.
        """
        start = 0
        while start < done:
            start = self._finish_lane(chunk, start, done)
        self.busy -= len(chunk)
        if done < len(chunk):
            self._put_back(chunk, done, retry_at_ms)

    def wake(self, now_ms: int) -> int | None:
        """Release what has waited long enough; returns when the next one is due."""
        delayed = self._delayed
        while delayed and delayed[0][0] <= now_ms:
            _, _, lane, item = heapq.heappop(delayed)
            if not lane.track.open:
                continue
            if item is not None:
                lane.items.appendleft(item)
                self.ready += lane.listed
            else:
                lane.waits = False
            if not lane.listed and not lane.busy and lane.items:
                self._list(lane)
        return self.next_due_ms

    @property
    def next_due_ms(self) -> int | None:
        """When the first waiting message is due."""
        return self._delayed[0][0] if self._delayed else None

    def close(self, track: Track) -> None:
        """Drop what waits for a revoked partition; what is at work may still settle."""
        track.open = False
        dropped = 0
        for lane in track.lanes.values():
            dropped += self._size([item[2] for item in lane.items])
            if lane.listed:
                self.ready -= len(lane.items)
                lane.listed = False
            lane.items.clear()
        for _, _, lane, item in self._delayed:
            if item is not None and lane.track is track:
                dropped += self._size([item[2]])
        self._delayed = [entry for entry in self._delayed if entry[2].track is not track]
        heapq.heapify(self._delayed)
        track.ready.clear()
        if track.in_ring:
            self._ring.remove(track)
            track.in_ring = False
        self.queued -= track.queued
        track.queued = 0
        self.bytes -= dropped
        track.bytes -= dropped

    def _add_by_key(
        self, track: Track, records: Sequence[ConsumedRecord], sequences: range
    ) -> None:
        lanes = track.lanes
        for record, sequence in zip(records, sequences, strict=True):
            key = record.key()
            lane = lanes.get(key)
            if lane is None:
                lane = self._new_lane(track, key)
            lane.items.append((lane, sequence, record))
            if lane.listed:
                self.ready += 1
            elif not lane.busy and not lane.waits:
                self._list(lane)

    def _size(self, records: Sequence[ConsumedRecord]) -> int:
        return sum(map(len, records)) + self._overhead_bytes * len(records)

    def _finish_lane(self, chunk: list[Item], start: int, done: int) -> int:
        """Finish the done messages of the lane at `start`; returns where the next lane begins."""
        lane, sequence, record = chunk[start]
        end = start + 1
        if end == len(chunk) or chunk[end][0] is not lane:
            # With many keys most lanes have a single message.
            track = lane.track
            track.progress.finish(sequence)
            size = len(record) + self._overhead_bytes
            track.busy -= 1
            track.bytes -= size
            self.bytes -= size
            self._free(lane)
            return end
        if not lane.shared and chunk[done - 1][0] is lane:
            end = done
        else:
            while end < done and chunk[end][0] is lane:
                end += 1
        track = lane.track
        sequences = [item[1] for item in chunk[start:end]]
        first = sequences[0]
        # In a lane without order, a message that came back from a wait may precede others.
        if sequences == list(range(first, first + len(sequences))):
            track.progress.finish_run(first, len(sequences))
        else:
            for sequence in sequences:
                track.progress.finish(sequence)
        size = self._size([item[2] for item in chunk[start:end]])
        track.busy -= end - start
        track.bytes -= size
        self.bytes -= size
        if end == len(chunk) or chunk[end][0] is not lane:
            self._free(lane)
        return end

    def _take_from(self, track: Track, chunk: list[Item], quota: int) -> None:
        ready = track.ready
        while ready and quota > 0:
            lane = ready[0]
            items = lane.items
            waiting = len(items)
            if waiting <= quota or self._whole:
                ready.popleft()
                lane.listed = False
                chunk.extend(items)
                items.clear()
                self.ready -= waiting
                quota -= waiting
                lane.busy = not lane.shared
            else:
                chunk.extend(map(deque.popleft, repeat(items, quota)))
                if lane.shared:
                    self.ready -= quota
                else:
                    ready.popleft()
                    lane.listed = False
                    lane.busy = True
                    self.ready -= waiting
                return

    def _put_back(self, chunk: list[Item], start: int, retry_at_ms: int | None) -> None:
        freed: list[Lane] = []
        first = chunk[start][0]
        for index in range(len(chunk) - 1, start - 1, -1):
            item = chunk[index]
            lane = item[0]
            track = lane.track
            track.busy -= 1
            if not track.open:
                size = self._size([item[2]])
                track.bytes -= size
                self.bytes -= size
                continue
            track.queued += 1
            self.queued += 1
            if retry_at_ms is not None and lane.shared and index == start:
                heapq.heappush(self._delayed, (retry_at_ms, next(self._order), lane, item))
                continue
            lane.items.appendleft(item)
            self.ready += lane.listed
            if not freed or freed[-1] is not lane:
                freed.append(lane)
        if retry_at_ms is not None and not first.shared and first.track.open:
            first.waits = True
            heapq.heappush(self._delayed, (retry_at_ms, next(self._order), first, None))
        for lane in reversed(freed):
            self._free(lane)

    def _new_lane(self, track: Track, key: object) -> Lane:
        # A message without a key has no order to keep.
        shared = self._shared or (self._by_key and key is None)
        if self._spare and not shared:
            lane = self._spare.pop()
            lane.track, lane.key = track, key
        else:
            lane = Lane(track, key, shared)
        track.lanes[key] = lane
        return lane

    def _free(self, lane: Lane) -> None:
        lane.busy = False
        if lane.items:
            if not lane.listed and not lane.waits:
                self._list(lane)
        elif self._by_key and not lane.shared and not lane.waits:
            # There is no end of keys, but there is of partitions.
            is_known = lane.track.lanes.pop(lane.key, None) is lane
            if is_known and len(self._spare) < SPARE_LANES:
                self._spare.append(lane)

    def _list(self, lane: Lane) -> None:
        track = lane.track
        if not track.open:
            return
        lane.listed = True
        track.ready.append(lane)
        self.ready += len(lane.items)
        if not track.in_ring:
            track.in_ring = True
            self._ring.append(track)

"""A hierarchical timing wheel: many deadlines, cheap to set and cheap to cancel.

The wheel is pure: it never reads a clock; the time is an argument. Level 0 has buckets of one tick,
level n has buckets of `size**n` ticks, and a level exists only while a bucket lives in it. A
deadline goes into the coarsest bucket that its distance allows; when that bucket comes to the
head of the queue it is spread over finer ones, so each entry moves at most once per level.

Buckets, not entries, are ordered (by a heap), and a bucket with nothing left in it is dropped
when it reaches the head: the wheel never asks to be woken for an empty tick.

Guarantees: an entry never expires before its deadline, and it expires with the first `advance`
to a time at or after its deadline rounded up to a whole tick.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class Timer(Generic[T]):
    """One deadline in the wheel; `cancel` takes it out again."""

    __slots__ = ("_bucket", "deadline_ms", "item")

    def __init__(self, deadline_ms: int, item: T) -> None:
        self.deadline_ms = deadline_ms
        self.item = item
        self._bucket: Bucket[T] | None = None

    @property
    def pending(self) -> bool:
        """True until the entry has expired or was cancelled."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Take the entry out of the wheel; False when it had already expired or been cancelled."""
        bucket = self._bucket
        if bucket is None:
            return False
        self._bucket = None
        del bucket.entries[self]
        return True


class Bucket(Generic[T]):
    """The entries of one interval of one level, in the order in which they were added."""

    __slots__ = ("entries", "index", "level", "start_tick")

    def __init__(self, level: int, index: int, start_tick: int) -> None:
        self.level = level
        self.index = index
        self.start_tick = start_tick
        self.entries: dict[Timer[T], None] = {}

    def __lt__(self, other: Bucket[T]) -> bool:
        # Of two buckets that start together the coarser goes first: it may hold entries that
        # belong into the finer one.
        return (self.start_tick, -self.level) < (other.start_tick, -other.level)


class TimingWheel(Generic[T]):
    """Deadlines in buckets of `tick_ms`, with overflow wheels of `size` buckets on demand."""

    __slots__ = ("_buckets", "_now_tick", "_queue", "_size", "_tick_ms")

    def __init__(self, tick_ms: int, size: int, start_ms: int) -> None:
        if tick_ms < 1 or size < 2:
            raise ValueError(f"a wheel needs tick_ms >= 1 and size >= 2, not {tick_ms} and {size}")
        self._tick_ms = tick_ms
        self._size = size
        self._now_tick = start_ms // tick_ms
        self._buckets: dict[tuple[int, int], Bucket[T]] = {}
        self._queue: list[Bucket[T]] = []

    def __len__(self) -> int:
        return sum(len(bucket.entries) for bucket in self._queue)

    def add(self, deadline_ms: int, item: T) -> Timer[T]:
        """Set a deadline; one that has passed already expires with the next `advance`."""
        entry = Timer(deadline_ms, item)
        expiry_tick = -(-deadline_ms // self._tick_ms)
        distance = expiry_tick - self._now_tick
        level, span = 0, self._size
        while distance >= span:
            level += 1
            span *= self._size
        self._place(entry, expiry_tick, level)
        return entry

    def advance(self, now_ms: int) -> list[T]:
        """Move the time forward and return what has expired, bucket after bucket."""
        now_tick = max(self._now_tick, now_ms // self._tick_ms)
        self._now_tick = now_tick
        expired: list[T] = []
        queue = self._queue
        while queue and queue[0].start_tick <= now_tick:
            bucket = self._pop()
            if bucket.level:
                self._spread(bucket)
                continue
            for entry in bucket.entries:
                entry._bucket = None
                expired.append(entry.item)
        return expired

    def next_expiry_ms(self) -> int | None:
        """The time of the next `advance` that will return something; None when nothing waits."""
        queue = self._queue
        while queue:
            bucket = queue[0]
            if not bucket.entries:
                self._pop()
            elif bucket.level:
                self._spread(self._pop())
            else:
                return bucket.start_tick * self._tick_ms
        return None

    def _place(self, entry: Timer[T], expiry_tick: int, level: int) -> None:
        ticks = self._size**level
        index = expiry_tick // ticks
        bucket = self._buckets.get((level, index))
        if bucket is None:
            bucket = Bucket(level, index, index * ticks)
            self._buckets[level, index] = bucket
            heappush(self._queue, bucket)
        bucket.entries[entry] = None
        entry._bucket = bucket

    def _pop(self) -> Bucket[T]:
        bucket = heappop(self._queue)
        del self._buckets[bucket.level, bucket.index]
        return bucket

    def _spread(self, bucket: Bucket[T]) -> None:
        for entry in bucket.entries:
            self._place(entry, -(-entry.deadline_ms // self._tick_ms), bucket.level - 1)

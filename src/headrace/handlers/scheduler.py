"""The scheduler of one handler: queued messages under a lock, and which of them run next."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

from headrace.handlers.lanes import Item, Lanes, Track

if TYPE_CHECKING:
    from headrace.client.message import ConsumedRecord
    from headrace.handlers.context import AppContext
    from headrace.handlers.spec import HandlerSpec

NS_PER_MS = 1_000_000
# A record costs memory beside its payload: the client's object, the lane's entry.
RECORD_OVERHEAD_BYTES = 500
CHUNK_MESSAGES_MAX = 500
CHUNK_MS = 2.0
# One transaction for this many: more would save little and hold locks for longer.
GROUP_MESSAGES_MAX = 200
GROUP_MS = 50.0
# While the store or the brokers are unavailable, everything waits this long between tries.
UNAVAILABLE_DELAY_MS = 500
# A new figure counts for a fifth; one that is far above the rest counts at once.
PACE_WEIGHT = 0.2
PACE_JUMP = 4.0
# Python runs on one core at a time: when it is this busy, another thread only gets in the way.
CORE_IN_USE = 0.8

_log = logging.getLogger("headrace.handlers")


class ChunkResult(NamedTuple):
    """How far a chunk came: its first `done` messages are finished, the others go back.

    The first of the others is not run before `retry_at_ms`; None lets it run at once.
    """

    done: int
    retry_at_ms: int | None = None


NOTHING_DONE = ChunkResult(0)


class Pace:
    """Moving averages of a handler's time per message and of its share of a processor."""

    __slots__ = ("_core", "_is_known", "_messages_max", "_ns", "_target_ns")

    def __init__(self, target_ms: float, messages_max: int) -> None:
        self._target_ns = target_ms * NS_PER_MS
        self._messages_max = messages_max
        self._is_known = False
        self._ns = self._target_ns
        # The share of its time that a handler computes; all of it until something is known.
        self._core = 1.0

    def note(self, messages: int, ns: int, cpu_ns: int | None = None) -> None:
        """Learn from a chunk; processor time is measured for some chunks only."""
        if not messages:
            return
        each = ns / messages
        weight = PACE_WEIGHT if self._is_known and each <= PACE_JUMP * self._ns else 1.0
        self._is_known = True
        self._ns += weight * (each - self._ns)
        if cpu_ns is not None:
            self._core += weight * (cpu_ns / max(ns, 1) - self._core)

    @property
    def chunk(self) -> int:
        """How many messages take about the target time; one for slow handlers."""
        return max(1, min(self._messages_max, int(self._target_ns / max(self._ns, 1.0))))

    def has_use_for_more(self, busy: int) -> bool:
        """Whether handlers wait more than they compute while `busy` threads are at work."""
        return self._core * busy < CORE_IN_USE


class Scheduler:
    """Lanes and attempts of one handler; the lock is held for microseconds only.

    The session adds what it polled, workers take it in chunks and report each chunk's result.
    """

    def __init__(self, spec: HandlerSpec, context: AppContext) -> None:
        self.spec = spec
        self.clock = context.clock
        self.lanes = Lanes(spec.order, RECORD_OVERHEAD_BYTES)
        self.lock = threading.Lock()
        self.stopping = False
        in_groups = spec.wants_tx or spec.once == "transaction"
        self.pace = Pace(
            GROUP_MS if in_groups else CHUNK_MS,
            GROUP_MESSAGES_MAX if in_groups else CHUNK_MESSAGES_MAX,
        )
        self._alarms = context.alarms
        self._settled = threading.Condition(self.lock)
        self._watchers = 0
        # Failed attempts of messages that are retried in place.
        self._attempts: dict[tuple[Track, int], int] = {}
        self._ready_since_ns = 0
        self._paused_until_ms: int | None = None
        self._is_waiting = False

    def add(self, records_by_track: Mapping[Track, Sequence[ConsumedRecord]]) -> None:
        """Queue what was polled."""
        with self.lock:
            was_ready = self.lanes.ready
            for track, records in records_by_track.items():
                self.lanes.add(track, records)
            if not was_ready:
                self._ready_since_ns = monotonic_ns()

    def next_chunk(
        self, chunk: list[Item] | None = None, result: ChunkResult = NOTHING_DONE
    ) -> list[Item]:
        """Report a worker's chunk and give it the next; empty when nothing may run now.

        The caller holds the lock.
        """
        if chunk:
            self._settle(chunk, result)
        if self.stopping or not self.lanes.ready or self._is_held():
            return []
        limit = self.spec.batch
        if limit:
            left_ms = self.linger_left_ms()
            if self.lanes.ready < limit and left_ms is not None and left_ms > 0:
                return []
            self._ready_since_ns = monotonic_ns()
        return self.lanes.take(limit or self.pace.chunk)

    def settle(self, chunk: list[Item], result: ChunkResult) -> None:
        """Report a chunk without taking another."""
        with self.lock:
            self._settle(chunk, result)

    def wake(self) -> int | None:
        """Release messages whose retry is due; returns milliseconds until the next one, if any."""
        with self.lock:
            return self.wake_locked()

    def wake_locked(self) -> int | None:
        """The same, for a caller that holds the lock."""
        now_ms = self.clock.monotonic_ms()
        due_ms = self.lanes.wake(now_ms)
        until_ms = self._paused_until_ms
        if self.lanes.ready and until_ms is not None and until_ms > now_ms:
            return until_ms - now_ms
        return None if due_ms is None else max(1, due_ms - now_ms)

    def linger_left_ms(self) -> float | None:
        """Milliseconds until an incomplete batch is handed over; None without one."""
        if not self.spec.batch or not self.lanes.ready:
            return None
        return self.spec.linger_ms - (monotonic_ns() - self._ready_since_ns) / NS_PER_MS

    def attempt(self, item: Item) -> int:
        """The number of the next attempt of a message, counted from 1."""
        attempts = self._attempts
        return attempts.get((item[0].track, item[1]), 0) + 1 if attempts else 1

    def count_attempt(self, item: Item, attempt: int) -> None:
        """Remember a failed attempt of a message that is retried in place."""
        with self.lock:
            self._attempts[item[0].track, item[1]] = attempt

    def pause_all(self, error: BaseException) -> int:
        """Run nothing for a while, because no message is at fault; returns until when."""
        if not self._is_waiting:
            self._is_waiting = True
            self._alarms.ring(
                "handler-waits",
                f"{self.spec.name} waits and tries again: {error}",
                handler=self.spec.name,
            )
        self._paused_until_ms = self.clock.monotonic_ms() + UNAVAILABLE_DELAY_MS
        return self._paused_until_ms

    def close(self, tracks: Iterable[Track], drain_ms: int) -> bool:
        """Drop what waits and let what runs end within a bound; False if something still runs."""
        closing = list(tracks)
        with self.lock:
            for track in closing:
                self.lanes.close(track)
            self._watchers += 1
            try:
                idle = self._settled.wait_for(
                    lambda: not any(track.busy for track in closing), drain_ms / 1000
                )
            finally:
                self._watchers -= 1
            gone = set(closing)
            for key in [key for key in self._attempts if key[0] in gone]:
                self._attempts.pop(key, None)
        return idle

    def wait_settled(self, timeout_ms: float) -> None:
        """Wait until some worker has reported a chunk."""
        with self.lock:
            self._watchers += 1
            self._settled.wait(timeout_ms / 1000)
            self._watchers -= 1

    def stop(self) -> None:
        """Give workers nothing from now on."""
        with self.lock:
            self.stopping = True

    def _settle(self, chunk: list[Item], result: ChunkResult) -> None:
        self.lanes.settle(chunk, *result)
        if self._attempts:
            for lane, sequence, _ in chunk[: result.done]:
                self._attempts.pop((lane.track, sequence), None)
        if self._is_waiting and result.done:
            self._is_waiting = False
            _log.info("%s goes on", self.spec.name)
        if self._watchers:
            self._settled.notify_all()

    def _is_held(self) -> bool:
        until_ms = self._paused_until_ms
        return until_ms is not None and self.clock.monotonic_ms() < until_ms

"""A session: one consumer from joining its group to leaving it, with polling and commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace.handlers.assignment import Assignment
from headrace.handlers.chunks import ChunkRunner
from headrace.handlers.large import LargeMessages
from headrace.handlers.outputs import KafkaTransactions
from headrace.handlers.pressure import GRACE_MS, Load, PollPlan, PressureControl, PressureLimits
from headrace.handlers.scheduler import Scheduler
from headrace.handlers.spilling import Spilling
from headrace.handlers.workers import ThreadWorkers, make_workers

if TYPE_CHECKING:
    from headrace.client.consumer.consumer import Consumer
    from headrace.client.message import ConsumedRecord
    from headrace.handlers.context import AppContext
    from headrace.handlers.execution import Execution
    from headrace.handlers.failures import Failures
    from headrace.handlers.lanes import Track
    from headrace.handlers.spec import HandlerSpec

POLL_RECORDS = 500
POLL_MS = 100.0
COMMIT_INTERVAL_SECONDS = 0.5
# How often a full buffer is checked for room.
FULL_POLL_SECONDS = 0.005
# How often workers are woken while a partition drains.
DRAIN_POLL_MS = 20.0
# A partition is paused when this many of its messages are behind an unfinished one: they are
# repeated after a crash, and the gap tracker has to remember them.
GAP_MESSAGES_MAX = 100_000
# What the client fetches ahead is memory too. It checks every 10 ms whether there is room again;
# by default it would wait for a second.
FETCH_AHEAD = {
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 10,
}
FETCH_DIRECT = {
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "fetch.queue.backoff.ms": 10,
}
DIRECT_GRACE_MS = 1_000

_log = logging.getLogger("headrace.handlers")


class Session:
    """One consumer: join, poll, run, commit, leave. Its thread polls; workers run messages."""

    def __init__(
        self,
        execution: Execution,
        failures: Failures,
        context: AppContext,
        stop: threading.Event,
        ready: threading.Event,
    ) -> None:
        spec = execution.spec
        self._spec = spec
        self._stop = stop
        self._ready = ready
        self.consumer = make_consumer(spec, context)
        self.transactions: KafkaTransactions | None = None
        if spec.once == "transaction":
            self.transactions = KafkaTransactions(execution, context)
        run = self.transactions.run if self.transactions else None
        self.scheduler = Scheduler(spec, context)
        chunks = ChunkRunner(execution, failures, self.scheduler, run)
        self.workers = make_workers(spec, self.scheduler, chunks, context)
        self.assignment = Assignment(self.scheduler, failures, self.consumer, context, self._stop)
        self.spilling: Spilling | None = None
        if spec.pressure == "spill":
            self.spilling = Spilling(self.scheduler, execution, failures, context)
        self.large: LargeMessages | None = None
        if context.large is not None:
            self.large = LargeMessages(context, spec.settings, self.assignment.tracks)
        self._pressure = make_pressure(spec)
        self._stuck: set[tuple[str, int]] = set()
        self._started = monotonic()
        self._commit_at = self._started + COMMIT_INTERVAL_SECONDS

    def run(self) -> None:
        """Work until the runner is stopped or the brokers fail; leaves the group in order."""
        try:
            self.consumer.subscribe(
                list(self._spec.topics),
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            self.workers.start()
            if self.spilling is not None:
                self.spilling.start()
            while not self._stop.is_set():
                self._turn()
        finally:
            self._end()

    def _turn(self) -> None:
        due_ms = self.scheduler.wake()
        self.workers.wake()
        plan = self._plan()
        if self.spilling is None:
            if plan.pause:
                self.consumer.pause(list(plan.pause))
            if plan.resume:
                self.consumer.resume(list(plan.resume))
        if plan.room or self.spilling is not None:
            waits = [POLL_MS, due_ms, self.scheduler.linger_left_ms()]
            timeout_ms = min(wait for wait in waits if wait is not None)
            self._poll(min(plan.room or POLL_RECORDS, POLL_RECORDS), max(timeout_ms, 0.0), plan)
        elif self._spec.pressure == "caller_runs":
            self._run_here()
        elif self._spec.pressure == "direct":
            self.scheduler.wait_settled(POLL_MS)
            if plan.all_paused:
                # A consumer that does not poll for max.poll.interval.ms is put out of the group.
                self._poll(1, 0.0, plan)
        else:
            # Being woken by each finished message would cost more than it brings.
            self._stop.wait(FULL_POLL_SECONDS)
        now = monotonic()
        if now >= self._commit_at:
            self._commit_at = now + COMMIT_INTERVAL_SECONDS
            if self.large is not None:
                self.large.expire()
            self.assignment.commit()
            self._note_generation()
            self._stuck = self.assignment.stuck(GAP_MESSAGES_MAX)

    def _poll(self, records_max: int, timeout_ms: float, plan: PollPlan) -> None:
        records = self.consumer.poll_batch(records_max, timeout_ms / 1000)
        if records:
            self._take(records, plan)

    def _take(self, records: list[ConsumedRecord], plan: PollPlan) -> None:
        by_track = self.assignment.by_track(records)
        for track, found in list(by_track.items()):
            if not track.progress.next_offset <= found[0].offset() <= found[-1].offset():
                self._restart_partition(by_track, track)
        if self.large is not None and self.large.any_among(records):
            self.large.admit(by_track)
        self._note_generation()
        if self._spec.delivery == "at_most_once":
            self.assignment.commit_first(by_track)
        if self.spilling is not None and plan.over:
            self._spill(self.spilling, by_track, plan)
        self.scheduler.add(by_track)
        if self.large is not None:
            self.large.queued()
        self.workers.wake()

    def _restart_partition(self, by_track: dict[Track, list[ConsumedRecord]], track: Track) -> None:
        """Go on with a partition whose offsets went back, once what was read before is done."""
        records = by_track.pop(track)
        last, turn = track.progress.next_offset - 1, 0
        while turn < len(records) and records[turn].offset() > last:
            last = records[turn].offset()
            turn += 1
        if turn:
            before = {track: records[:turn]}
            if self.large is not None:
                self.large.admit(before)
            self.scheduler.add(before)
        if self.large is not None:
            self.large.forget([(track.topic, track.partition)])
        self._drain([track], monotonic() + self._spec.drain_ms / 1000)
        by_track[self.assignment.restart(track)] = records[turn:]

    def _drain(self, tracks: list[Track], until: float) -> None:
        """Let the workers do what is queued of these partitions, until a time."""
        while any(track.messages for track in tracks) and monotonic() < until:
            self.scheduler.wake()
            self.workers.wake()
            self.scheduler.wait_settled(DRAIN_POLL_MS)

    def _note_generation(self) -> None:
        if self.transactions is not None:
            self.transactions.generation = self.consumer.group_metadata()

    def _spill(
        self, spilling: Spilling, by_track: dict[Track, list[ConsumedRecord]], plan: PollPlan
    ) -> None:
        for track in [track for track in by_track if (track.topic, track.partition) in plan.over]:
            records = by_track.pop(track)
            self.assignment.wait_for_store(lambda: spilling.put(records))  # noqa: B023
            with self.scheduler.lock:
                for record in records:
                    track.progress.finish(track.progress.arrive(record.offset()))

    def _plan(self) -> PollPlan:
        lanes = self.scheduler.lanes
        elapsed_ms = int((monotonic() - self._started) * 1000)
        if not self._stuck and self._pressure.is_calm(lanes.messages, lanes.bytes, elapsed_ms):
            return self._pressure.open_plan
        loads = {
            place: Load(track.messages, track.bytes)
            for place, track in self.assignment.tracks.items()
        }
        return self._pressure.plan(loads, elapsed_ms, int(monotonic() * 1000), self._stuck)

    def _run_here(self) -> None:
        """Run a chunk in this thread: polling slows down to the pace of the work."""
        assert isinstance(self.workers, ThreadWorkers)
        if not self.workers.run_one_chunk():
            self.scheduler.wait_settled(self._pressure.limits.grace_ms)

    def _assigned(self, partitions: list[Any]) -> list[Any]:
        started = self.assignment.assigned(partitions)
        self._ready.set()
        return started

    def _revoked(self, partitions: list[Any]) -> None:
        until = monotonic() + self._spec.drain_ms / 1000
        if self._spec.delivery == "at_most_once":
            # It is committed, so nobody else runs it; what is left at the end is lost.
            self._drain(self.assignment.tracks_of(partitions), until)
        self.assignment.revoked(partitions, max(0, int((until - monotonic()) * 1000)))
        self._forget(partitions)

    def _lost(self, partitions: list[Any]) -> None:
        self.assignment.lost(partitions)
        self._forget(partitions)

    def _forget(self, partitions: list[Any]) -> None:
        places = [(gone.topic, gone.partition) for gone in partitions]
        self._pressure.forget(places)
        if self.large is not None:
            self.large.forget(places)

    def _end(self) -> None:
        # Closing the consumer takes its partitions away, which lets what runs end, and commits.
        ending: list[Callable[[], object]] = [self.consumer.close, self.workers.stop]
        if self.spilling is not None:
            ending.insert(0, self.spilling.stop)
        if self.transactions is not None:
            ending.append(self.transactions.close)
        for step in ending:
            try:
                step()
            except Exception:
                _log.exception("%s did not stop cleanly", self._spec.name)


def make_consumer(spec: HandlerSpec, context: AppContext) -> Consumer:
    """The consumer of a handler: it reads a new group's topics from their beginning."""
    from headrace.client.consumer.consumer import Consumer

    return Consumer(
        {
            "auto.offset.reset": "earliest",
            **(FETCH_DIRECT if spec.pressure == "direct" else FETCH_AHEAD),
            **context.client_settings("consumer"),
            **spec.settings,
            "enable.auto.commit": False,
        },
        group=spec.group,
        start=spec.start,
    )


def make_pressure(spec: HandlerSpec) -> PressureControl:
    """The limits of a handler's buffer; `direct` has no buffer but its workers."""
    if spec.pressure == "direct":
        messages, grace_ms = spec.workers_max, DIRECT_GRACE_MS
    else:
        messages, grace_ms = spec.buffer_messages, GRACE_MS
    limits = PressureLimits(messages, spec.buffer_bytes, spec.slow_start_ms, grace_ms)
    return PressureControl(limits, strict=spec.pressure == "direct")

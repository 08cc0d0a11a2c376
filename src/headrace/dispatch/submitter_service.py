"""Submits this node's jobs: stores them, sends each with a token, and follows it to its outcome."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.produce_errors import is_record_fault, is_unknown_partition
from headrace.dispatch.effects import ChangeToken, Effect, Send
from headrace.dispatch.records import Outcome, WorkHeaders
from headrace.dispatch.spool.port import (
    DoneRead,
    JobDone,
    JobPut,
    JobReturned,
    JobSent,
    RecordPosition,
    SpoolChange,
    SpoolContents,
    SpooledJob,
)
from headrace.dispatch.submitter_machine import SubmitterMachine
from headrace.dispatch.tokens.store import Fence, Return, Revoke, Token

if TYPE_CHECKING:
    from headrace.client.delivery import OnDelivery, RecordMetadata
    from headrace.client.errors import DeliveryFailed
    from headrace.client.producer import Producer
    from headrace.dispatch.consumers import DoneReader
    from headrace.dispatch.spool.writer import Callback, SpoolCapacity, SpoolWriter
    from headrace.dispatch.token_service import TokenService

# How often the position in TOPIC.done is stored.
READ_SECONDS = 1.0
# The first and the longest pause before a job whose send failed is sent again.
RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 5.0

_log = logging.getLogger("headrace.dispatch")


@dataclass(slots=True)
class UnfinishedJob:
    """A job without an outcome, and its position in the work topic once it was sent."""

    value: bytes
    submitted_ms: int
    position: RecordPosition | None = None
    sent_ms: int = 0
    # Sends that failed; the pause before the next one grows with them.
    failures: int = 0


def _call_later(delay_s: float, action: Callable[[], None]) -> None:
    timer = threading.Timer(delay_s, action)
    timer.daemon = True
    timer.start()


class SubmitterService:
    """The unfinished jobs of this node; usable from many threads."""

    def __init__(
        self,
        node: str,
        topic: str,
        producer: Producer,
        capacity: SpoolCapacity,
        *,
        on_finished: Callable[[Outcome], None],
        now_ms: Callable[[], int],
        write: Callable[[Outcome, OnDelivery], None],
        call_later: Callable[[float, Callable[[], None]], None] = _call_later,
    ) -> None:
        self.jobs: dict[str, UnfinishedJob] = {}
        self.machine = SubmitterMachine()
        self.submitted = 0
        self._node = node
        self._topic = topic
        self._producer = producer
        self._capacity = capacity
        self._on_finished = on_finished
        self._now_ms = now_ms
        self._write = write
        self._call_later = call_later
        self._lock = threading.Lock()
        # Sent before a restart, or by a node that is dead: the machine does not know their tokens.
        self._recovered: set[str] = set()
        # Taken over by other nodes; a handle may still wait for their outcomes here.
        self._taken_over: set[str] = set()
        self._read_at_s = 0.0
        self._writer: SpoolWriter
        self._tokens: TokenService
        self._reader: DoneReader

    def connect(self, writer: SpoolWriter, tokens: TokenService, reader: DoneReader) -> None:
        """Use these, which needed this service to be made."""
        self._writer = writer
        self._tokens = tokens
        self._reader = reader

    def __contains__(self, id: object) -> bool:
        """Whether this node waits for the outcome of this job."""
        return id in self.jobs or id in self._taken_over

    def want(self) -> int:
        """How many jobs wait for a token."""
        return self.machine.want

    def submit(self, puts: Sequence[JobPut], stored: Callback) -> None:
        """Store jobs in the spool and have them sent; `stored` is called when they are durable.

        A job with the id of an unfinished one is that job. Waits for room in the spool without
        blocking; SpoolFull if the spool refuses.
        """
        new = list({put.id: put for put in puts if put.id not in self.jobs}.values())
        size = sum(len(put.value) for put in new)

        def reserved(error: Exception | None) -> None:
            if error is not None:
                stored(error)
            else:
                self._writer.put(new, written)

        def written(error: Exception | None) -> None:
            if error is not None:
                self._capacity.release(len(new), size)
            else:
                self.submitted += len(new)
                # A node that never had a job of its own does not read TOPIC.done.
                if self._reader.start(at_end=True):
                    self._writer.note([DoneRead(*at) for at in self._reader.position.items()])
                self.stored(new)
            stored(error)

        self._capacity.reserve(len(new), size, reserved)

    def stored(self, puts: Sequence[JobPut]) -> None:
        """New jobs are in the spool: they wait for tokens now."""
        with self._lock:
            # Two threads may have submitted one id at the same time.
            repeated = [put for put in puts if put.id in self.jobs]
            for put in puts:
                self.jobs.setdefault(put.id, UnfinishedJob(put.value, put.submitted_ms))
            self.machine.submitted(put.id for put in puts)
        if repeated:
            self._capacity.release(len(repeated), sum(len(put.value) for put in repeated))
        self._tokens.ask()

    def recover(self, contents: SpoolContents) -> None:
        """Add jobs from before a restart or of a dead node; sent ones only wait for an outcome."""
        new = [job for job in contents.jobs.values() if job.id not in self.jobs]
        with self._lock:
            for job in new:
                self._recover(job)
        self._capacity.occupy(len(new), sum(len(job.value) for job in new))

    def _recover(self, job: SpooledJob) -> None:
        self.jobs[job.id] = UnfinishedJob(job.value, job.submitted_ms, job.sent, self._now_ms())
        if job.sent is None:
            self.machine.submitted([job.id])
        else:
            self._recovered.add(job.id)

    def drop_all_but(self, kept: Iterable[str]) -> None:
        """Other nodes assumed that this one is dead, and took over all jobs but these."""
        kept = set(kept)
        with self._lock:
            gone = {id: self.jobs.pop(id) for id in list(self.jobs) if id not in kept}
            self._taken_over |= gone.keys()
            for id in gone:
                self._recovered.discard(id)
                self.machine.outcome(id, "done", None)
        self._capacity.release(len(gone), sum(len(job.value) for job in gone.values()))

    def granted(self, tokens: Iterable[Token]) -> None:
        """Send a job with each token."""
        with self._lock:
            effects = self.machine.granted(tokens)
        self._carry_out(effects)

    def outcomes(self, outcomes: Sequence[Outcome], position: Mapping[int, int]) -> None:
        """Handle outcomes from TOPIC.done, which has been read up to `position`."""
        changes: list[SpoolChange] = []
        finished: list[Outcome] = []
        freed_bytes = 0
        with self._lock:
            for outcome in outcomes:
                job = self.jobs.get(outcome.id)
                if job is None:
                    if outcome.is_final and outcome.id in self._taken_over:
                        self._taken_over.discard(outcome.id)
                        self._on_finished(outcome)
                    continue
                if not outcome.is_of(job.submitted_ms):
                    # Of an earlier job with this id.
                    continue
                if self._is_finished(outcome, job):
                    del self.jobs[outcome.id]
                    freed_bytes += len(job.value)
                    finished.append(outcome)
                    changes.append(JobDone(outcome.id))
                elif job.position is None:
                    changes.append(JobReturned(outcome.id))
        now_s = time.monotonic()
        if now_s >= self._read_at_s:
            self._read_at_s = now_s + READ_SECONDS
            changes += [DoneRead(*at) for at in position.items()]
        if changes:
            self._writer.note(changes)
        if finished:
            self._capacity.release(len(finished), freed_bytes)
        for outcome in finished:
            self._on_finished(outcome)
        if len(finished) < len(outcomes):
            self._tokens.ask()

    def _is_finished(self, outcome: Outcome, job: UnfinishedJob) -> bool:
        if outcome.id in self._recovered:
            if not outcome.is_final:
                if (outcome.partition, outcome.offset) == job.position:
                    self._wait_again(outcome.id, job)
                return False
            self._recovered.discard(outcome.id)
            return True
        fence = Fence.parse(outcome.fence)
        token = None if fence is None else Token(outcome.partition, fence)
        before = self.machine.want
        is_finished = self.machine.outcome(outcome.id, outcome.state, token)
        if not is_finished and self.machine.want > before:
            job.position = None
        return is_finished

    def overdue(self, sent_before_ms: int) -> dict[str, UnfinishedJob]:
        """Jobs that were sent before this time and have no outcome yet."""
        with self._lock:
            return {
                id: job
                for id, job in self.jobs.items()
                if job.position is not None and job.sent_ms < sent_before_ms
            }

    def lost(self, positions: Mapping[str, RecordPosition]) -> None:
        """The group moved past these jobs without an outcome: they are sent again."""
        changes: list[SpoolChange] = []
        with self._lock:
            for id, position in positions.items():
                job = self.jobs.get(id)
                if job is None or job.position != position:
                    continue
                if id in self._recovered:
                    self.machine.counts["lost"] += 1
                    self._wait_again(id, job)
                else:
                    job.position = None
                    self.machine.lost(id)
                changes.append(JobReturned(id))
        if changes:
            self._writer.note(changes)
            self._tokens.ask()

    def _wait_again(self, id: str, job: UnfinishedJob) -> None:
        self._recovered.discard(id)
        job.position = None
        self.machine.submitted([id])

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.job_id, effect.token)
            elif isinstance(effect, ChangeToken):
                self._tokens.add([effect.change])

    def _send(self, id: str, token: Token) -> None:
        job = self.jobs.get(id)
        if job is None:
            # The outcome of an earlier send has just arrived.
            self._tokens.add([Return(*token)])
            return

        def delivered(metadata: RecordMetadata | None, error: DeliveryFailed | None) -> None:
            if metadata is None:
                self._not_sent(id, token, error, surely=False)
            else:
                job.failures = 0
                job.position = (metadata.partition, metadata.offset)
                job.sent_ms = self._now_ms()
                if id in self.jobs:
                    self._writer.note([JobSent(id, metadata.partition, metadata.offset)])

        try:
            self._producer.send(
                self._topic,
                job.value,
                headers=WorkHeaders(id, token.fence.text(), job.submitted_ms).headers(),
                partition=token.partition,
                on_delivery=delivered,
            )
        except Exception as error:
            self._not_sent(id, token, error, surely=True)

    def _not_sent(self, id: str, token: Token, error: Exception | None, *, surely: bool) -> None:
        _log.warning("job %s was not sent to %s/%d: %s", id, self._topic, token.partition, error)
        job = self.jobs.get(id)
        if job is not None and is_record_fault(error):
            self._tokens.add([Return(*token)])
            self._give_up(id, job, token, error)
            return
        with self._lock:
            effects = self.machine.failed(token, surely=surely)
        if is_unknown_partition(error):
            # The topic had more partitions before. If the partition is new instead and this
            # producer does not know it yet, its owner misses the token and puts it back.
            effects = [ChangeToken(Revoke(*token))]
        self._carry_out(effects)
        failures = 0
        if job is not None:
            failures, job.failures = job.failures, job.failures + 1
        pause_s = min(RETRY_SECONDS_MIN * 2 ** min(failures, 10), RETRY_SECONDS_MAX)
        self._call_later(pause_s, lambda: self._again(id, token))

    def _again(self, id: str, token: Token) -> None:
        with self._lock:
            self.machine.again(id, token)
        self._tokens.ask()

    def _give_up(self, id: str, job: UnfinishedJob, token: Token, error: Exception | None) -> None:
        """The brokers refuse this job every time: write to TOPIC.done that it has failed."""

        def written(metadata: RecordMetadata | None, _error: DeliveryFailed | None) -> None:
            if metadata is None:
                self._call_later(RETRY_SECONDS_MAX, lambda: self._again(id, token))

        origin = (token.partition, token.fence.next_offset, token.fence.text(), self._node)
        cause = (type(error).__name__, str(error))
        outcome = Outcome(id, "failed", *origin, error=cause, submitted_ms=job.submitted_ms)
        try:
            self._write(outcome, written)
        except Exception:
            _log.exception("the outcome of job %s, which cannot be sent, was not written", id)
            written(None, None)

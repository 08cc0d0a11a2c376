"""Owns partitions: runs the jobs that arrive, writes their outcomes, gives tokens back."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.client.produce_errors import is_record_fault
from headrace.dispatch import effects as fx
from headrace.dispatch.consumers import AssignedPartition, ConsumerOrders
from headrace.dispatch.owner_machine import OwnerMachine
from headrace.dispatch.records import Outcome, WorkHeaders
from headrace.dispatch.tokens.store import Answer, Fence, TokenChange
from headrace.dispatch.workers import JobRun, Workers

if TYPE_CHECKING:
    from headrace.client.delivery import RecordMetadata
    from headrace.client.errors import DeliveryFailed
    from headrace.client.message import ConsumedRecord
    from headrace.client.producer import Producer
    from headrace.dispatch.lookup_service import LookupService
    from headrace.dispatch.options import DispatchLimits
    from headrace.dispatch.token_service import TokenService

_log = logging.getLogger("headrace.dispatch")


class OwnerService:
    """The partitions of this node and the jobs that run in them; usable from many threads."""

    def __init__(
        self, node: str, topic: str, done_topic: str, limits: DispatchLimits, producer: Producer
    ) -> None:
        self.machine = OwnerMachine(limits)
        self.finished = {"done": 0, "failed": 0}
        self._node = node
        self._topic = topic
        self._done_topic = done_topic
        self._producer = producer
        self._lock = threading.Lock()
        self._owned: set[int] = set()
        # Records that were read and are not settled, by partition and offset.
        self._held: dict[int, dict[int, tuple[Any, WorkHeaders]]] = {}
        self._commits: dict[int, int] = {}
        self._claims: dict[int, int] = {}
        self._seeks: dict[int, int] = {}
        # Outcomes that the brokers did not accept; written again with every tick.
        self._unwritten: deque[tuple[Outcome, bool]] = deque()
        self._workers: Workers
        self._tokens: TokenService
        self._lookup: LookupService

    def connect(self, workers: Workers, tokens: TokenService, lookup: LookupService) -> None:
        """Use these, which needed this service to be made."""
        self._workers = workers
        self._tokens = tokens
        self._lookup = lookup

    def assigned(self, assigned: Sequence[AssignedPartition]) -> None:
        """The group has assigned partitions to this node."""
        with self._lock:
            effects = [effect for one in assigned for effect in self.machine.assigned(*one)]
            self._owned.update(one.partition for one in assigned)
        self._carry_out(effects)

    def revoked(self, partitions: Sequence[int]) -> None:
        """Partitions are no longer ours; jobs that run in them go on."""
        with self._lock:
            effects = [effect for number in partitions for effect in self.machine.revoked(number)]
            running = self.machine.running
            for number in partitions:
                self._owned.discard(number)
                self._commits.pop(number, None)
                held = self._held.pop(number, {})
                # Another thread may be about to run it.
                offset = running[number].offset if number in running else -1
                if offset in held:
                    self._held[number] = {offset: held[offset]}
        self._carry_out(effects)

    def records(self, records: Sequence[ConsumedRecord]) -> None:
        """Records of the work topic were read."""
        effects: list[fx.Effect] = []
        machine = self.machine
        with self._lock:
            for record in records:
                partition, offset = record.partition(), record.offset()
                mine = machine.partitions.get(partition)
                if mine is not None and offset < mine.position:
                    # The offset to be committed may be beyond the log's end now.
                    effects = [it for it in effects if not _is_commit_of(it, partition)]
                    effects += self._start_again(partition, mine.epoch, offset)
                if record.value() is None:
                    effects += machine.record(partition, offset, None, None)
                    continue
                if partition not in self._owned:
                    continue
                work = WorkHeaders.parse(record.headers())
                self._held.setdefault(partition, {})[offset] = (record, work)
                effects += machine.record(partition, offset, Fence.parse(work.fence), work.id)
                mine = machine.partitions.get(partition)
                if mine is None or offset not in mine.open:
                    del self._held[partition][offset]
        self._carry_out(effects)

    def answered(self, _changes: Sequence[TokenChange], answer: Answer) -> None:
        """The token store has answered."""
        with self._lock:
            effects = self.machine.answered(answer)
        self._carry_out(effects)

    def checked(self, check: fx.Check, is_settled: bool) -> None:
        """The lookup service knows whether a record of an earlier owner is settled."""
        with self._lock:
            effects = self.machine.checked(check, is_settled)
            if is_settled:
                self._held.get(check.partition, {}).pop(check.offset, None)
        self._carry_out(effects)

    def claimed(self, partition: int) -> None:
        """The group has accepted our commit: the partition is ours."""
        with self._lock:
            effects = self.machine.claimed(partition)
        self._carry_out(effects)

    def tick(self) -> None:
        """Time has passed."""
        with self._lock:
            effects = self.machine.tick(_now_ms())
        self._carry_out(effects)
        for _ in range(len(self._unwritten)):
            outcome, is_left = self._unwritten.popleft()
            self._write(outcome, is_left)

    def ended(self, job: JobRun, outcome: Outcome) -> None:
        """A worker has run a job: write its outcome."""
        with self._lock:
            self.finished[outcome.state] += 1
            is_left = job.partition not in self._owned
        # A partition that was left has a new owner, which looks up the outcome as soon as the lease
        # ends: the outcome has to be written by then. In any other case the job ends before its
        # outcome is sent, since the outcome may be acknowledged at once.
        if not is_left:
            self._finished(outcome)
        self._write(outcome, is_left)

    def times_ms(self, partition: int, offset: int) -> tuple[int, int] | None:
        """When an unsettled record was written, and when its job was submitted; None if gone."""
        with self._lock:
            held = self._held.get(partition, {}).get(offset)
        if held is None:
            return None
        record, work = held
        return int(record.timestamp()[1]), work.submitted_ms

    def flush(self, timeout_s: float) -> None:
        """Wait until all outcomes are written."""
        self._producer.flush(timeout_s)

    def take_orders(self) -> ConsumerOrders | None:
        """What the polling thread has to do."""
        if not self._claims and not self._seeks:
            return None
        with self._lock:
            orders = ConsumerOrders(self._claims, self._seeks)
            self._claims, self._seeks = {}, {}
        return orders

    def take_commits(self, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """The offsets to commit: of all partitions, or of these."""
        with self._lock:
            if partitions is None:
                taken, self._commits = self._commits, {}
                return taken
            return {p: self._commits.pop(p) for p in partitions if p in self._commits}

    def restore_commits(self, commits: Mapping[int, int]) -> None:
        """Commit these later: the commit failed."""
        with self._lock:
            for partition, next_offset in commits.items():
                if partition in self._owned:
                    self._commits.setdefault(partition, next_offset)

    def _start_again(self, partition: int, epoch: int, offset: int) -> list[fx.Effect]:
        """Go on at the end of a log that has lost its last records, as in a power failure."""
        if partition not in self._owned:
            return []
        _log.warning(
            "the offsets of %s/%d went back: its last records may be lost", self._topic, partition
        )
        self._commits.pop(partition, None)
        effects = self.machine.revoked(partition)
        return effects + self.machine.assigned(partition, epoch, offset, offset)

    def _carry_out(self, effects: Iterable[fx.Effect]) -> None:
        changes: list[TokenChange] = []
        queries: list[int] = []
        commits: list[fx.Commit] = []
        for effect in effects:
            if isinstance(effect, fx.ChangeToken):
                changes.append(effect.change)
            elif isinstance(effect, fx.Run):
                self._run(effect)
            elif isinstance(effect, fx.Commit):
                commits.append(effect)
            elif isinstance(effect, fx.Query):
                queries.append(effect.partition)
            elif isinstance(effect, fx.Refuse):
                self._refuse(effect)
            elif isinstance(effect, fx.Check):
                self._lookup.check(effect)
            elif isinstance(effect, fx.Probe):
                self._probe(effect.partition)
            elif isinstance(effect, fx.Claim | fx.Seek):
                self._order(effect)
        if commits:
            with self._lock:
                for partition, next_offset in commits:
                    if next_offset > self._commits.get(partition, -1):
                        self._commits[partition] = next_offset
        if changes or queries:
            self._tokens.add(changes, queries)

    def _order(self, effect: fx.Claim | fx.Seek) -> None:
        with self._lock:
            if isinstance(effect, fx.Claim):
                self._claims[effect.partition] = effect.next_offset
            else:
                self._seeks[effect.partition] = effect.offset

    def _run(self, run: fx.Run) -> None:
        with self._lock:
            record, work = self._held.get(run.partition, {}).pop(run.offset)
        origin = (self._topic, run.partition, run.offset, run.job_id, run.fence)
        self._workers.run(JobRun(*origin, record.value(), work.submitted_ms))

    def _refuse(self, refuse: fx.Refuse) -> None:
        with self._lock:
            held = self._held.get(refuse.partition, {}).pop(refuse.offset, None)
        work = WorkHeaders("", "", 0) if held is None else held[1]
        origin = (refuse.partition, refuse.offset, work.fence, self._node)
        refused = Outcome(refuse.job_id, "refused", *origin, submitted_ms=work.submitted_ms)
        self._write(refused, False)

    def _write(self, outcome: Outcome, is_left: bool) -> None:
        """Write an outcome; the machine goes on when it is durable."""

        def delivered(metadata: RecordMetadata | None, error: DeliveryFailed | None) -> None:
            if metadata is None:
                self._not_written(outcome, is_left, error)
                return
            if is_left:
                self._finished(outcome)
            with self._lock:
                effects = self.machine.written(outcome.partition, outcome.offset)
                # A record that was read again meanwhile is still held.
                self._held.get(outcome.partition, {}).pop(outcome.offset, None)
            self._carry_out(effects)

        try:
            self._producer.send(
                self._done_topic,
                outcome.answer,
                key=outcome.id.encode(),
                headers=outcome.headers(),
                on_delivery=delivered,
            )
        except Exception as error:
            self._not_written(outcome, is_left, error)

    def _not_written(self, outcome: Outcome, is_left: bool, error: Exception | None) -> None:
        _log.warning("the outcome of job %s was not written: %s", outcome.id, error)
        if outcome.answer is not None and is_record_fault(error):
            # It is refused every time, and the partition cannot go on without an outcome.
            cause = ("AnswerTooLarge", f"the worker's answer was refused: {error}")
            outcome = outcome._replace(state="failed", answer=None, error=cause)
        self._unwritten.append((outcome, is_left))

    def _finished(self, outcome: Outcome) -> None:
        with self._lock:
            effects = self.machine.finished(outcome.partition, outcome.offset)
        self._carry_out(effects)

    def _probe(self, partition: int) -> None:
        try:
            self._producer.send(self._topic, None, partition=partition)
        except Exception as error:
            _log.info("no probe was sent to %s/%d: %s", self._topic, partition, error)


def _is_commit_of(effect: fx.Effect, partition: int) -> bool:
    """Whether the effect commits an offset of this partition."""
    return isinstance(effect, fx.Commit) and effect.partition == partition


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000

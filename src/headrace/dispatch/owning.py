"""The owning half of a node: items come to its partitions, run, and their outcomes are written."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.client.produce_errors import is_record_fault
from headrace.dispatch import effects as fx
from headrace.dispatch.consuming import Given, Orders
from headrace.dispatch.crew import Crew, Task
from headrace.dispatch.fences import Fence
from headrace.dispatch.outcomes import Outcome
from headrace.dispatch.owner import Owner
from headrace.dispatch.tokens import Answer, Change
from headrace.dispatch.work_records import Work, parse_headers

if TYPE_CHECKING:
    from headrace.client.delivery import RecordMetadata
    from headrace.client.errors import DeliveryFailed
    from headrace.client.producer import Producer
    from headrace.dispatch.exchanger import Exchanger
    from headrace.dispatch.inspector import Inspector
    from headrace.dispatch.limits import Limits

_log = logging.getLogger("headrace.dispatch")


class Owning:
    """The partitions that this node has, and what runs in them; usable from many threads."""

    def __init__(
        self, node: str, topic: str, done_topic: str, limits: Limits, producer: Producer
    ) -> None:
        self.owner = Owner(limits)
        self.finished = {"done": 0, "failed": 0}
        self._node = node
        self._topic = topic
        self._done_topic = done_topic
        self._producer = producer
        self._lock = threading.Lock()
        self._owned: set[int] = set()
        # Records that were read and are not settled, by partition and offset.
        self._held: dict[int, dict[int, tuple[Any, Work]]] = {}
        self._commits: dict[int, int] = {}
        self._claims: dict[int, int] = {}
        self._seeks: dict[int, int] = {}
        # Outcomes that the brokers would not take; tried again with every tick.
        self._unwritten: deque[tuple[Outcome, bool]] = deque()
        self._crew: Crew
        self._exchanger: Exchanger
        self._inspector: Inspector

    def connect(self, crew: Crew, exchanger: Exchanger, inspector: Inspector) -> None:
        """Use these, which had to know this one before they were made."""
        self._crew = crew
        self._exchanger = exchanger
        self._inspector = inspector

    def assigned(self, given: Sequence[Given]) -> None:
        """Partitions are ours."""
        with self._lock:
            found = [effect for one in given for effect in self.owner.assigned(*one)]
            self._owned.update(one.partition for one in given)
        self._carry_out(found)

    def revoked(self, partitions: Sequence[int]) -> None:
        """Partitions are no longer ours; what runs in them goes on."""
        with self._lock:
            found = [effect for number in partitions for effect in self.owner.revoked(number)]
            running = self.owner.running
            for number in partitions:
                self._owned.discard(number)
                self._commits.pop(number, None)
                held = self._held.pop(number, {})
                # The thread that found it may be about to run it.
                offset = running[number].offset if number in running else -1
                if offset in held:
                    self._held[number] = {offset: held[offset]}
        self._carry_out(found)

    def records(self, records: Sequence[Any]) -> None:
        """Records of the work topic came."""
        found: list[fx.Effect] = []
        owner = self.owner
        with self._lock:
            for record in records:
                partition, offset = record.partition(), record.offset()
                mine = owner.partitions.get(partition)
                if mine is not None and offset < mine.position:
                    # What was to be committed may lie behind the log's end now.
                    found = [it for it in found if not is_commit_of(it, partition)]
                    found += self._begin_anew(partition, mine.epoch, offset)
                if record.value() is None:
                    found += owner.record(partition, offset, None, None)
                    continue
                if partition not in self._owned:
                    continue
                work = parse_headers(record.headers())
                self._held.setdefault(partition, {})[offset] = (record, work)
                found += owner.record(partition, offset, Fence.parse(work.fence), work.id)
                mine = owner.partitions.get(partition)
                if mine is None or offset not in mine.open:
                    del self._held[partition][offset]
        self._carry_out(found)

    def answered(self, _changes: Sequence[Change], answer: Answer) -> None:
        """The token store has answered."""
        with self._lock:
            found = self.owner.answered(answer)
        self._carry_out(found)

    def checked(self, check: fx.Check, is_settled: bool) -> None:
        """It is known whether a record of an earlier owner is settled."""
        with self._lock:
            found = self.owner.checked(check, is_settled)
            if is_settled:
                self._held.get(check.partition, {}).pop(check.offset, None)
        self._carry_out(found)

    def claimed(self, partition: int) -> None:
        """The group has taken our commit: the partition is ours."""
        with self._lock:
            found = self.owner.claimed(partition)
        self._carry_out(found)

    def tick(self) -> None:
        """Time has passed."""
        with self._lock:
            found = self.owner.tick(_now_ms())
        self._carry_out(found)
        for _ in range(len(self._unwritten)):
            outcome, is_left = self._unwritten.popleft()
            self._write(outcome, is_left)

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A worker has run an item."""
        with self._lock:
            self.finished[outcome.state] += 1
            is_left = task.partition not in self._owned
        # A partition that was left has a new owner, which looks for the outcome once it is told
        # that nothing runs here any more: so it has to be there by then. Any other is over before
        # its outcome is sent, since that may be acknowledged at once.
        if not is_left:
            self._finished(outcome)
        self._write(outcome, is_left)

    def times_ms(self, partition: int, offset: int) -> tuple[int, int] | None:
        """When a record that is not settled was written, and when its job was submitted.

        None if it is not here any more.
        """
        with self._lock:
            held = self._held.get(partition, {}).get(offset)
        if held is None:
            return None
        record, work = held
        return int(record.timestamp()[1]), work.submitted_ms

    def flush(self, timeout_s: float) -> None:
        """Wait for the outcomes that are on their way."""
        self._producer.flush(timeout_s)

    def take_orders(self) -> Orders | None:
        """What the polling thread is to do."""
        if not self._claims and not self._seeks:
            return None
        with self._lock:
            orders = Orders(self._claims, self._seeks)
            self._claims, self._seeks = {}, {}
        return orders

    def take_commits(self, partitions: Sequence[int] | None = None) -> dict[int, int]:
        """What is to be committed: of all partitions, or of these."""
        with self._lock:
            if partitions is None:
                taken, self._commits = self._commits, {}
                return taken
            return {p: self._commits.pop(p) for p in partitions if p in self._commits}

    def restore_commits(self, commits: Mapping[int, int]) -> None:
        """These were not committed after all."""
        with self._lock:
            for partition, next_offset in commits.items():
                if partition in self._owned:
                    self._commits.setdefault(partition, next_offset)

    def _begin_anew(self, partition: int, epoch: int, offset: int) -> list[fx.Effect]:
        """Go on where a log ends that has lost its last records, as by a power failure."""
        if partition not in self._owned:
            return []
        _log.warning(
            "the offsets of %s/%d went back; were its last records lost?", self._topic, partition
        )
        self._commits.pop(partition, None)
        found = self.owner.revoked(partition)
        return found + self.owner.assigned(partition, epoch, offset, offset)

    def _carry_out(self, effects: Iterable[fx.Effect]) -> None:
        changes: list[Change] = []
        looks: list[int] = []
        commits: list[fx.Commit] = []
        for effect in effects:
            if isinstance(effect, fx.Store):
                changes.append(effect.change)
            elif isinstance(effect, fx.Run):
                self._run(effect)
            elif isinstance(effect, fx.Commit):
                commits.append(effect)
            elif isinstance(effect, fx.Look):
                looks.append(effect.partition)
            elif isinstance(effect, fx.Refuse):
                self._refuse(effect)
            elif isinstance(effect, fx.Check):
                self._inspector.check(effect)
            elif isinstance(effect, fx.Probe):
                self._probe(effect.partition)
            elif isinstance(effect, fx.Claim | fx.Seek):
                self._order(effect)
        if commits:
            with self._lock:
                for partition, next_offset in commits:
                    if next_offset > self._commits.get(partition, -1):
                        self._commits[partition] = next_offset
        if changes or looks:
            self._exchanger.add(changes, looks)

    def _order(self, effect: fx.Claim | fx.Seek) -> None:
        with self._lock:
            if isinstance(effect, fx.Claim):
                self._claims[effect.partition] = effect.next_offset
            else:
                self._seeks[effect.partition] = effect.offset

    def _run(self, run: fx.Run) -> None:
        with self._lock:
            record, work = self._held.get(run.partition, {}).pop(run.offset)
        place = (self._topic, run.partition, run.offset, run.item_id, run.fence)
        self._crew.run(Task(*place, record.value(), work.submitted_ms))

    def _refuse(self, refuse: fx.Refuse) -> None:
        with self._lock:
            held = self._held.get(refuse.partition, {}).pop(refuse.offset, None)
        work = Work("", "", 0) if held is None else held[1]
        place = (refuse.partition, refuse.offset, work.fence, self._node)
        refused = Outcome(refuse.item_id, "refused", *place, submitted_ms=work.submitted_ms)
        self._write(refused, False)

    def _write(self, outcome: Outcome, is_left: bool) -> None:
        """Write an outcome; the rest follows when it is durable."""

        def delivered(metadata: RecordMetadata | None, error: DeliveryFailed | None) -> None:
            if metadata is None:
                self._not_written(outcome, is_left, error)
                return
            if is_left:
                self._finished(outcome)
            with self._lock:
                found = self.owner.written(outcome.partition, outcome.offset)
                # One that was read again meanwhile is still held.
                self._held.get(outcome.partition, {}).pop(outcome.offset, None)
            self._carry_out(found)

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
            # It never will be, and until something is, the partition cannot go on.
            told = ("AnswerTooLarge", f"the worker's answer was refused: {error}")
            outcome = outcome._replace(state="failed", answer=None, error=told)
        self._unwritten.append((outcome, is_left))

    def _finished(self, outcome: Outcome) -> None:
        with self._lock:
            found = self.owner.finished(outcome.partition, outcome.offset)
        self._carry_out(found)

    def _probe(self, partition: int) -> None:
        try:
            self._producer.send(self._topic, None, partition=partition)
        except Exception as error:
            _log.info("%s/%d was not probed: %s", self._topic, partition, error)


def is_commit_of(effect: fx.Effect, partition: int) -> bool:
    """Whether it commits an offset of this partition."""
    return isinstance(effect, fx.Commit) and effect.partition == partition


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000

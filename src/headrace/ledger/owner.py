"""The owner of state partitions: reads their entries and acts on those that are due."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.client.clock import Clock, SystemClock
from headrace.client.message import ConsumedRecord
from headrace.ledger.clients import AbortedTransaction, GroupReader, TransactionalProducer
from headrace.ledger.entries import EntryCache
from headrace.ledger.machine import LedgerMachine
from headrace.ledger.state_partition import PlannedTransaction, StatePartition
from headrace.ledger.stats import LedgerStats
from headrace.ledger.targets import RECHECK_SECONDS, TargetTopics, handle_abort
from headrace.ledger.topics import ServiceTopics
from headrace.telemetry.alarms import Alarms

BATCH_RECORDS = 5_000
POLL_SECONDS = 0.1
# A test's clock cannot wake the owner, so it is polled this often.
VIRTUAL_POLL_SECONDS = 0.02
# Entries that fall due this soon after a transaction has begun share the next one.
GATHER_SECONDS = 0.04
TRANSACTION_ENTRIES_MAX = 2_000
OFFSETS_SECONDS = 20.0
# Transactions that are committed at the same time.
COMMITS_MAX = 8
# How long a partition pauses after an aborted transaction, doubling while that goes on.
PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 5.0
# How often the owner checks for hanging transactions: longer than any of its own can be open.
STUCK_SECONDS = 60.0

_log = logging.getLogger("headrace.ledger")


class OwnedPartition:
    """A state partition with its producer; acts once it is read up to `ready_at`.

    `ready_at` is where the partition ended when the previous owner was fenced.
    """

    def __init__(
        self,
        number: int,
        producer: TransactionalProducer,
        machine: LedgerMachine,
        writer: int,
        now_ms: int,
        cache_dir: Path | None,
    ) -> None:
        self.number = number
        self._producer = producer
        self.ready_at = -1
        self.next_offset = 0
        self.is_caught_up = False
        self._checked_offset = -1
        self._is_stuck = False
        self.paused_until = 0.0
        self._pause_s = PAUSE_SECONDS
        self._cache = EntryCache.in_file(cache_dir)
        self.state = StatePartition(machine, self._cache, writer, now_ms)

    def close(self) -> None:
        """Drop everything; the next owner aborts a transaction that is still open."""
        self._cache.close()
        self._producer.close()

    def apply(self, records: Sequence[ConsumedRecord]) -> None:
        """Apply records in their order; skip those that were applied before."""
        new = [record for record in records if record.offset() >= self.next_offset]
        if new:
            self.state.apply((key, record.value()) for record in new if (key := record.key()))
            self.advance(new[-1].offset() + 1)

    def advance(self, next_offset: int) -> None:
        """All records before this offset are applied, or were never committed."""
        self.next_offset = max(self.next_offset, next_offset)
        if self.next_offset >= self.ready_at:
            self.is_caught_up = True

    def is_newly_stuck(self, end: int) -> bool:
        """Whether reading has stopped short of `end` since the last call, and had not before.

        `end` is where the partition ended at the last call.
        """
        was_stuck = self._is_stuck
        self._is_stuck = self.next_offset == self._checked_offset and self.next_offset < end
        self._checked_offset = self.next_offset
        return self._is_stuck and not was_stuck

    def begin(self, plan: PlannedTransaction, state_topic: str) -> None:
        """Begin a transaction and send all its records."""
        producer = self._producer
        producer.begin()
        for tag, (_, action) in enumerate(plan.items):
            for topic, key, value, headers, _ in action.send:
                producer.send(topic, value, key, headers=headers, tag=tag)
        for written, value in plan.writes(self.state.writer):
            producer.send(state_topic, value, written, partition=self.number)

    def commit(self) -> AbortedTransaction | None:
        """Commit the transaction; if that is refused, abort it and return why.

        KafkaException if the outcome is unknown, or if the partition has another owner now.
        """
        aborted = self._producer.commit()
        if aborted is None:
            self._pause_s = PAUSE_SECONDS
        return aborted

    def pause(self, now_s: float) -> None:
        """Run no transaction for a while."""
        self.paused_until = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_SECONDS_MAX)


class StateOwner:
    """A member of the group that shares the state partitions among the instances."""

    def __init__(
        self,
        machine: LedgerMachine,
        settings: Mapping[str, Any],
        clock: Clock,
        alarms: Alarms,
        stats: LedgerStats,
        cache_dir: Path | None = None,
    ) -> None:
        self.ready = threading.Event()
        self._machine = machine
        self._topics = ServiceTopics(machine.name)
        self._settings = settings
        self._clock = clock
        self._alarms = alarms
        self._stats = stats
        self._cache_dir = cache_dir
        self._owned: dict[int, OwnedPartition] = {}
        # When partitions were assigned that are not all read yet.
        self._reading_since: float | None = None
        self._poll_s = POLL_SECONDS if isinstance(clock, SystemClock) else VIRTUAL_POLL_SECONDS

    def run(self, stopping: threading.Event, admin: AdminClient) -> None:
        """Own partitions and act until it is stopped; a failure gives all partitions up."""
        topics = self._topics
        self._admin = admin
        self._targets = TargetTopics(admin, topics)
        self._recheck_at = 0.0
        self._check_stuck_at = 0.0
        self._requested_ends: dict[int, Future[Any]] = {}
        self._commits = ThreadPoolExecutor(COMMITS_MAX, f"headrace-{topics.state}-commit")
        reader = GroupReader(
            self._settings, topics.state, self._assigned, self._revoked, OFFSET_BEGINNING
        )
        try:
            reader.join()
            while not stopping.is_set():
                records, ends = reader.read(self._wait_s(), BATCH_RECORDS)
                # A partition may have been revoked while the last of these were read.
                for number in records.keys() & self._owned.keys():
                    self._owned[number].apply(records[number])
                for number in ends.keys() & self._owned.keys():
                    self._owned[number].advance(ends[number])
                self._act()
                self._check_stuck()
                self._update_stats()
        finally:
            self.ready.clear()
            self._revoked(list(self._owned))
            self._update_stats()
            self._commits.shutdown()
            reader.close()

    def _assigned(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            # The fence comes first: from here on no older owner can commit a transaction.
            producer = TransactionalProducer(self._settings, self._topics.owner_id(number))
            writer = secrets.randbelow(1 << 63) + 1
            now_ms = self._clock.now_ms()
            self._owned[number] = OwnedPartition(
                number, producer, self._machine, writer, now_ms, self._cache_dir
            )
        for number, end in self._request_ends(numbers).items():
            self._owned[number].ready_at = end.result(OFFSETS_SECONDS).offset
        self._reading_since = time.monotonic()
        self._stats.owned = len(self._owned)
        self.ready.set()

    def _request_ends(self, numbers: Sequence[int]) -> dict[int, Future[Any]]:
        """Ask for the ends of partitions, open transactions included.

        The last stable offset of this moment would not do: an intake's open transaction may hide
        what the previous owner committed after that transaction began.
        """
        if not numbers:
            return {}
        latest = {
            TopicPartition(self._topics.state, number): OffsetSpec.latest() for number in numbers
        }
        found = self._admin.list_offsets(
            latest,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=OFFSETS_SECONDS,
        )
        return {partition.partition: future for partition, future in found.items()}

    def _revoked(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            owned = self._owned.pop(number, None)
            self._stats.positions.pop((self._topics.state, number), None)
            if owned is not None:
                owned.close()

    def _act(self) -> None:
        """Run one transaction for each partition with due entries, all at the same time."""
        now_s = time.monotonic()
        if now_s >= self._recheck_at:
            self._recheck_at = now_s + RECHECK_SECONDS
            for owned in self._owned.values():
                owned.state.retry_waiting(self._targets.must_wait)
        now_ms = self._clock.now_ms()
        begun: list[tuple[OwnedPartition, PlannedTransaction]] = []
        for owned in self._owned.values():
            if owned.is_caught_up and now_s >= owned.paused_until:
                plan = owned.state.plan(now_ms, TRANSACTION_ENTRIES_MAX, self._targets)
                if plan:
                    owned.paused_until = now_s + GATHER_SECONDS
                    owned.begin(plan, self._topics.state)
                    begun.append((owned, plan))
        # A commit waits for the brokers, so all of them run at the same time.
        commits = [self._commits.submit(owned.commit) for owned, _ in begun]
        wait(commits)
        for (owned, plan), commit in zip(begun, commits, strict=True):
            self._finish(owned, plan, commit.result())

    def _finish(
        self,
        owned: OwnedPartition,
        plan: PlannedTransaction,
        aborted: AbortedTransaction | None,
    ) -> None:
        if aborted is None:
            self._targets.accepted(outgoing.topic for outgoing in plan.sends)
            for name, text in owned.state.committed(plan):
                self._alarms.ring(name, text)
            self._stats.acted += len(plan.items)
            self._stats.transactions += 1
            return
        where = aborted.records[0].topic if aborted.records else "unknown topic"
        _log.warning(
            "%s/%d: transaction aborted, %s: %s",
            self._topics.state, owned.number, where, aborted.cause.str(),
        )  # fmt: skip
        if handle_abort(owned.state, self._targets, plan, aborted, self._topics):
            owned.pause(time.monotonic())

    def _check_stuck(self) -> None:
        """Ring for partitions that a hanging transaction keeps from being read.

        Nothing behind the beginning of an open transaction can be read, and brokers that crashed
        may have lost the end of one.
        """
        now_s = time.monotonic()
        if now_s < self._check_stuck_at:
            return
        self._check_stuck_at = now_s + STUCK_SECONDS
        for number, end in self._requested_ends.items():
            owned = self._owned.get(number)
            if owned is None or not end.done() or end.exception() is not None:
                continue
            if owned.is_newly_stuck(end.result().offset):
                self._alarms.ring(
                    self._machine.stuck_alarm,
                    f"{self._topics.state}/{number} cannot be read beyond offset "
                    f"{owned.next_offset}: a transaction is open there; if it hangs, headrace txn "
                    f"hanging --longer-than 1m --topic {self._topics.state} names it",
                )
        self._requested_ends = self._request_ends(list(self._owned))

    def _wait_s(self) -> float:
        now_ms, now_s = self._clock.now_ms(), time.monotonic()
        waits = [
            max((owned.state.next_ms(now_ms) - now_ms) / 1000, owned.paused_until - now_s)
            for owned in self._owned.values()
            if owned.is_caught_up
        ]
        return max(0.0, min([self._poll_s, *waits]))

    def _update_stats(self) -> None:
        stats, owned = self._stats, self._owned.values()
        stats.owned = len(owned)
        caught_up = [one for one in owned if one.is_caught_up]
        stats.pending = sum(one.state.pending for one in owned)
        dues = [one.state.first_due_ms() for one in caught_up]
        stats.first_due_ms = min((due for due in dues if due is not None), default=None)
        for one in owned:
            stats.positions[self._topics.state, one.number] = one.next_offset
        # Set last: a reader who sees it sees the other figures too.
        stats.caught_up = len(caught_up)
        if self._reading_since is not None and len(caught_up) == len(owned):
            took_s, self._reading_since = time.monotonic() - self._reading_since, None
            _log.info("read %s: %d entries in %.1f s", self._topics.state, stats.pending, took_s)

"""The keeper: owns state partitions, knows their entries, and acts when they are due."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    IsolationLevel,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.client.clock import Clock, SystemClock
from headrace.ledger.book import Plan
from headrace.ledger.machine import Machine
from headrace.ledger.owned import Owned
from headrace.ledger.reading import Reader
from headrace.ledger.settling import settle
from headrace.ledger.stats import Stats
from headrace.ledger.targets import LOOK_SECONDS, Targets
from headrace.ledger.topics import Names
from headrace.ledger.writer import Failed, Writer
from headrace.telemetry.alarms import Alarms

BATCH_RECORDS = 5_000
POLL_SECONDS = 0.1
# A clock that is turned by a test does not say when; it is looked at this often.
TURNED_POLL_SECONDS = 0.02
# What falls due so soon after a transaction has begun shares the next one.
GATHER_SECONDS = 0.04
# Entries of one transaction.
ACTIONS_MAX = 2_000
OFFSETS_SECONDS = 20.0
# Transactions that are committed at the same time.
COMMITS_MAX = 8
# Longer than any transaction of an instance can be open.
HELD_SECONDS = 60.0

_log = logging.getLogger("headrace.ledger")


class Keeper:
    """A member of the group that shares the state partitions among the instances."""

    def __init__(
        self,
        machine: Machine,
        settings: Mapping[str, Any],
        clock: Clock,
        alarms: Alarms,
        stats: Stats,
        cache_dir: Path | None = None,
    ) -> None:
        self.ready = threading.Event()
        self._machine = machine
        self._names = Names(machine.name)
        self._settings = settings
        self._clock = clock
        self._alarms = alarms
        self._stats = stats
        self._cache_dir = cache_dir
        self._owned: dict[int, Owned] = {}
        # When the partitions came that are not all read yet.
        self._since: float | None = None
        self._poll_s = POLL_SECONDS if isinstance(clock, SystemClock) else TURNED_POLL_SECONDS

    def live(self, stopping: threading.Event, admin: AdminClient) -> None:
        """Own and act until it is stopped; a failure gives all partitions up."""
        names = self._names
        self._admin = admin
        self._targets = Targets(admin, names)
        self._look_at = 0.0
        self._held_look_at = 0.0
        self._asked_ends: dict[int, Future[Any]] = {}
        self._commits = ThreadPoolExecutor(COMMITS_MAX, f"headrace-{names.state}-commit")
        own, give_up = self._own, self._give_up
        reader = Reader(self._settings, names.state, own, give_up, OFFSET_BEGINNING)
        try:
            reader.join()
            while not stopping.is_set():
                records, ends = reader.read(self._wait_s(), BATCH_RECORDS)
                # A partition may have gone while the last of these were read.
                for number in records.keys() & self._owned.keys():
                    self._owned[number].enter(records[number])
                for number in ends.keys() & self._owned.keys():
                    self._owned[number].reach(ends[number])
                self._act()
                self._look_for_held()
                self._tell()
        finally:
            self.ready.clear()
            self._give_up(list(self._owned))
            self._tell()
            self._commits.shutdown()
            reader.close()

    def _own(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            # First the fence: from here on no older owner can end a transaction.
            producer = Writer(self._settings, self._names.keeper_id(number))
            writer = secrets.randbelow(1 << 63) + 1
            now_ms = self._clock.now_ms()
            self._owned[number] = Owned(
                number, producer, self._machine, writer, now_ms, self._cache_dir
            )
        for number, end in self._ends(numbers).items():
            self._owned[number].until = end
        self._since = time.monotonic()
        self._stats.owned = len(self._owned)
        self.ready.set()

    def _ends(self, numbers: Sequence[int]) -> dict[int, int]:
        """The ends of partitions, open transactions included.

        To read to the last stable offset of this moment is not enough: an intake's transaction
        that is open now may hide what the last owner committed behind its beginning.
        """
        found = self._ask_ends(numbers)
        return {number: future.result(OFFSETS_SECONDS).offset for number, future in found.items()}

    def _ask_ends(self, numbers: Sequence[int]) -> dict[int, Future[Any]]:
        if not numbers:
            return {}
        asked = {
            TopicPartition(self._names.state, number): OffsetSpec.latest() for number in numbers
        }
        found = self._admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=OFFSETS_SECONDS,
        )
        return {place.partition: future for place, future in found.items()}

    def _give_up(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            owned = self._owned.pop(number, None)
            self._stats.positions.pop((self._names.state, number), None)
            if owned is not None:
                owned.close()

    def _act(self) -> None:
        """One transaction for each partition with something due, all at the same time."""
        now_s = time.monotonic()
        if now_s >= self._look_at:
            self._look_at = now_s + LOOK_SECONDS
            for owned in self._owned.values():
                owned.book.look_again(self._targets.must_wait)
        now_ms = self._clock.now_ms()
        begun: list[tuple[Owned, Plan]] = []
        for owned in self._owned.values():
            if owned.is_caught_up and now_s >= owned.rest_until:
                plan = owned.book.plan(now_ms, ACTIONS_MAX, self._targets)
                if plan:
                    owned.rest_until = now_s + GATHER_SECONDS
                    owned.begin(plan, self._names.state)
                    begun.append((owned, plan))
        # A commit waits for the brokers: of several, all at the same time.
        commits = [self._commits.submit(owned.commit) for owned, _ in begun]
        wait(commits)
        for (owned, plan), commit in zip(begun, commits, strict=True):
            self._end(owned, plan, commit.result())

    def _look_for_held(self) -> None:
        """Ring for partitions in which a transaction is open that nobody ends.

        Nothing behind its beginning can be read. Brokers have lost the end of one when they died.
        """
        now_s = time.monotonic()
        if now_s < self._held_look_at:
            return
        self._held_look_at = now_s + HELD_SECONDS
        for number, asked in self._asked_ends.items():
            owned = self._owned.get(number)
            if owned is None or not asked.done() or asked.exception() is not None:
                continue
            if owned.is_held_now(asked.result().offset):
                self._alarms.ring(
                    self._machine.held_alarm,
                    f"{self._names.state}/{number} cannot be read beyond offset {owned.position}: "
                    "a transaction is open there; if it hangs, headrace txn hanging "
                    f"--longer-than 1m --topic {self._names.state} names it",
                )
        self._asked_ends = self._ask_ends(list(self._owned))

    def _end(self, owned: Owned, plan: Plan, failed: Failed | None) -> None:
        if failed is None:
            self._targets.worked(outgoing.topic for outgoing in plan.sends)
            for name, text in owned.book.done(plan):
                self._alarms.ring(name, text)
            self._stats.acted += len(plan.items)
            self._stats.transactions += 1
            return
        where = failed.records[0].topic if failed.records else "a topic"
        _log.warning(
            "%s/%d: a transaction came to nothing, %s: %s",
            self._names.state, owned.number, where, failed.cause.str(),
        )  # fmt: skip
        if settle(owned.book, self._targets, plan, failed, self._names):
            owned.rest(time.monotonic())

    def _wait_s(self) -> float:
        now_ms, now_s = self._clock.now_ms(), time.monotonic()
        waits = [
            max((owned.book.next_ms(now_ms) - now_ms) / 1000, owned.rest_until - now_s)
            for owned in self._owned.values()
            if owned.is_caught_up
        ]
        return max(0.0, min([self._poll_s, *waits]))

    def _tell(self) -> None:
        stats, owned = self._stats, self._owned.values()
        stats.owned = len(owned)
        caught_up = [one for one in owned if one.is_caught_up]
        stats.pending = sum(one.book.pending for one in owned)
        dues = [one.book.first_due_ms() for one in caught_up]
        stats.first_due_ms = min((due for due in dues if due is not None), default=None)
        for one in owned:
            stats.positions[self._names.state, one.number] = one.position
        # Last: who sees this sees the rest.
        stats.caught_up = len(caught_up)
        if self._since is not None and len(caught_up) == len(owned):
            took_s, self._since = time.monotonic() - self._since, None
            _log.info("%s is read: %d entries, %.1f s", self._names.state, stats.pending, took_s)

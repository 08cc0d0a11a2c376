"""Looks up outcomes in TOPIC.done: of records an earlier owner left, and of overdue jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from headrace.client.consumer.consumer import Consumer
from headrace.dispatch.consumers import (
    DONE_POLL_RECORDS,
    DONE_POLL_SECONDS,
    DONE_SETTINGS,
    outcomes_of,
)
from headrace.dispatch.errors import DispatchError

if TYPE_CHECKING:
    from headrace.dispatch.effects import Check
    from headrace.dispatch.owner_service import OwnerService
    from headrace.dispatch.records import Outcome
    from headrace.dispatch.spool.port import RecordPosition
    from headrace.dispatch.submitter_service import SubmitterService
    from headrace.dispatch.topic_admin import TopicAdmin

# A job is overdue when it was sent this long ago; how often overdue jobs are looked up.
OVERDUE_MS = 10_000
OVERDUE_CHECK_SECONDS = 5.0
# How far clocks may differ where a topic stores the writers' time instead of the broker's.
CLOCKS_MS = 60_000
RETRY_SECONDS = 0.5
# A scan gives up when this much time passes without any record.
SCAN_SECONDS_MAX = 60.0

_log = logging.getLogger("headrace.dispatch")


class LookupService:
    """A thread that asks the brokers, so that no other thread waits for them."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        done_topic: str,
        group: str,
        admin: TopicAdmin,
        submitter: SubmitterService,
        owner: OwnerService,
        on_check: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._done_topic = done_topic
        self._group = group
        self._admin = admin
        self._submitter = submitter
        self._owner = owner
        self._on_check = on_check
        self._wanted = threading.Condition()
        self._checks: dict[tuple[int, int], Check] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="headrace-lookup", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the present question."""
        with self._wanted:
            self._is_stopping = True
            self._wanted.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self, check: Check) -> None:
        """Find out whether a record is settled; the owner service gets the answer."""
        with self._wanted:
            self._checks[check.partition, check.offset] = check
            self._wanted.notify()

    def _run(self) -> None:
        check_at_s = time.monotonic() + OVERDUE_CHECK_SECONDS
        while True:
            with self._wanted:
                self._wanted.wait_for(
                    lambda: self._checks or self._is_stopping, max(0, check_at_s - time.monotonic())
                )
                if self._is_stopping:
                    return
                checks, self._checks = self._checks, {}
            try:
                if checks:
                    self._settle(list(checks.values()))
                    with self._wanted:
                        # Asked once more while it was being answered.
                        for at, check in checks.items():
                            if self._checks.get(at) == check:
                                del self._checks[at]
                checks = {}
                if time.monotonic() >= check_at_s:
                    check_at_s = time.monotonic() + OVERDUE_CHECK_SECONDS
                    self._on_check()
                    self._check_overdue()
            except Exception as error:
                # Anything but an error of the brokers is a bug; the thread survives it.
                is_known = isinstance(error, KafkaException | OSError | DispatchError)
                _log.info("outcomes cannot be looked up now: %s", error, exc_info=not is_known)
                with self._wanted:
                    self._checks = {**checks, **self._checks}
                    self._wanted.wait_for(lambda: self._is_stopping, RETRY_SECONDS)

    def _settle(self, checks: list[Check]) -> None:
        times: dict[Check, tuple[int, int]] = {}
        for check in checks:
            times_ms = self._owner.times_ms(check.partition, check.offset)
            if times_ms is not None:
                times[check] = times_ms
        if not times:
            return
        since_ms = min(written_ms for written_ms, _ in times.values())
        found = self._scan({check.job_id for check in times}, since_ms)
        for check, (_, submitted_ms) in times.items():
            position = (check.partition, check.offset)
            is_settled = any(
                outcome.id == check.job_id
                and outcome.is_of(submitted_ms)
                and (outcome.is_final or (outcome.partition, outcome.offset) == position)
                for outcome in found
            )
            self._owner.checked(check, is_settled)

    def _check_overdue(self) -> None:
        """Have jobs sent again that the group has passed over without an outcome."""
        now_ms = time.time_ns() // 1_000_000
        overdue = self._submitter.overdue(now_ms - OVERDUE_MS)
        positions: dict[str, RecordPosition] = {
            id: job.position for id, job in overdue.items() if job.position
        }
        if not positions:
            return
        numbers = {partition for partition, _ in positions.values()}
        committed = self._admin.committed(self._group, self._topic, numbers)
        ends = self._admin.ends(self._topic, numbers)
        passed = {
            id: (partition, offset)
            for id, (partition, offset) in positions.items()
            if committed.get(partition, -1) > offset or ends[partition] <= offset
        }
        if not passed:
            return
        found = self._scan(passed, min(overdue[id].submitted_ms for id in passed))
        final = {
            outcome.id: outcome
            for outcome in found
            if outcome.is_final and outcome.is_of(overdue[outcome.id].submitted_ms)
        }
        self._submitter.outcomes(list(final.values()), {})
        self._submitter.lost({id: at for id, at in passed.items() if id not in final})

    def _scan(self, ids: Container[str], since_ms: int) -> list[Outcome]:
        """The outcomes of these jobs from a time until now.

        TimeoutError if no more records arrive before the end, or on stopping.
        """
        topic = self._done_topic
        numbers = range(self._admin.partitions(topic))
        starts = self._admin.since(topic, numbers, max(0, since_ms - CLOCKS_MS))
        ends = self._admin.ends(topic, numbers)
        left = {p: end for p, end in ends.items() if 0 <= starts[p] < end}
        found: list[Outcome] = []
        if not left:
            return found
        with Consumer({**DONE_SETTINGS, **self._settings}, start="earliest") as consumer:
            consumer.assign([(topic, p, starts[p]) for p in left])
            deadline_s = time.monotonic() + SCAN_SECONDS_MAX
            while left:
                if time.monotonic() > deadline_s or self._is_stopping:
                    raise TimeoutError(f"{topic} was not read to its end: {left}")
                records = consumer.poll_batch(DONE_POLL_RECORDS, DONE_POLL_SECONDS)
                if records:
                    deadline_s = time.monotonic() + SCAN_SECONDS_MAX
                for record in records:
                    if record.offset() + 1 >= left.get(record.partition(), 0):
                        left.pop(record.partition(), None)
                    found += outcomes_of([record], ids)
        return found

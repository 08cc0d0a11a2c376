"""Looks outcomes up: of records that an earlier owner left, and of items that wait too long."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from headrace.dispatch.done_topic import scan
from headrace.dispatch.errors import DispatchError

if TYPE_CHECKING:
    from headrace.dispatch.cluster import Cluster
    from headrace.dispatch.effects import Check
    from headrace.dispatch.outcomes import Outcome
    from headrace.dispatch.owning import Owning
    from headrace.dispatch.spool.changes import Place
    from headrace.dispatch.submitting import Submitting

# Items that were sent longer ago are looked after, so often.
OVERDUE_MS = 10_000
OVERDUE_LOOK_SECONDS = 5.0
# Clocks may differ by so much where a topic keeps the writers' time instead of the broker's.
CLOCKS_MS = 60_000
AGAIN_SECONDS = 0.5

_log = logging.getLogger("headrace.dispatch")


class Inspector:
    """A thread that asks the brokers, so that nobody else has to wait for them."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        done_topic: str,
        group: str,
        cluster: Cluster,
        submitting: Submitting,
        owning: Owning,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._done_topic = done_topic
        self._group = group
        self._cluster = cluster
        self._submitting = submitting
        self._owning = owning
        self._on_look = on_look
        self._wanted = threading.Condition()
        self._checks: dict[tuple[int, int], Check] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="headrace-inspector", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after what is being asked."""
        with self._wanted:
            self._is_stopping = True
            self._wanted.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self, check: Check) -> None:
        """Find out whether a record is settled, and tell the owning half."""
        with self._wanted:
            self._checks[check.partition, check.offset] = check
            self._wanted.notify()

    def _run(self) -> None:
        look_at_s = time.monotonic() + OVERDUE_LOOK_SECONDS
        while True:
            with self._wanted:
                self._wanted.wait_for(
                    lambda: self._checks or self._is_stopping, max(0, look_at_s - time.monotonic())
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
                if time.monotonic() >= look_at_s:
                    look_at_s = time.monotonic() + OVERDUE_LOOK_SECONDS
                    self._on_look()
                    self._look_after_overdue()
            except Exception as error:
                # Not one of the brokers' is a bug; the thread lives on, for all other questions.
                is_known = isinstance(error, KafkaException | OSError | DispatchError)
                _log.info("outcomes cannot be looked up now: %s", error, exc_info=not is_known)
                with self._wanted:
                    self._checks = {**checks, **self._checks}
                    self._wanted.wait_for(lambda: self._is_stopping, AGAIN_SECONDS)

    def _settle(self, checks: list[Check]) -> None:
        times: dict[Check, tuple[int, int]] = {}
        for check in checks:
            times_ms = self._owning.times_ms(check.partition, check.offset)
            if times_ms is not None:
                times[check] = times_ms
        if not times:
            return
        since_ms = min(written_ms for written_ms, _ in times.values())
        found = self._outcomes({check.item_id for check in times}, since_ms)
        for check, (_, submitted_ms) in times.items():
            place = (check.partition, check.offset)
            is_settled = any(
                outcome.id == check.item_id
                and outcome.is_of(submitted_ms)
                and (outcome.is_final or (outcome.partition, outcome.offset) == place)
                for outcome in found
            )
            self._owning.checked(check, is_settled)

    def _look_after_overdue(self) -> None:
        """An item that the group has passed over without an outcome is lost: send it again."""
        now_ms = time.time_ns() // 1_000_000
        overdue = self._submitting.overdue(now_ms - OVERDUE_MS)
        places: dict[str, Place] = {id: it.place for id, it in overdue.items() if it.place}
        if not places:
            return
        numbers = {partition for partition, _ in places.values()}
        committed = self._cluster.committed(self._group, self._topic, numbers)
        ends = self._cluster.ends(self._topic, numbers)
        passed = {
            id: (partition, offset)
            for id, (partition, offset) in places.items()
            if committed.get(partition, -1) > offset or ends[partition] <= offset
        }
        if not passed:
            return
        found = self._outcomes(passed, min(overdue[id].submitted_ms for id in passed))
        final = {
            outcome.id: outcome
            for outcome in found
            if outcome.is_final and outcome.is_of(overdue[outcome.id].submitted_ms)
        }
        self._submitting.outcomes(list(final.values()), {})
        self._submitting.lost({id: at for id, at in passed.items() if id not in final})

    def _outcomes(self, ids: Container[str], since_ms: int) -> list[Outcome]:
        since_ms = max(0, since_ms - CLOCKS_MS)
        place = (self._settings, self._done_topic, self._cluster)
        return scan(*place, since_ms, ids, lambda: self._is_stopping)

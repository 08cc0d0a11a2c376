"""Spilling: messages that find no room in memory go to the store until there is some."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.client.message import ConsumedRecord, Message
from headrace.errors import Unavailable

if TYPE_CHECKING:
    from headrace.handlers.context import AppContext
    from headrace.handlers.execution import Execution
    from headrace.handlers.failures import Failures
    from headrace.handlers.scheduler import Scheduler

TAKEN_MAX = 100
# How late it may notice messages that another process left in the spill.
POLL_MS = 1_000

_log = logging.getLogger("headrace.handlers")


class Spilling:
    """The spill of one handler: the session fills it, a thread of its own empties it."""

    def __init__(
        self, scheduler: Scheduler, execution: Execution, failures: Failures, context: AppContext
    ) -> None:
        self._scheduler = scheduler
        self._execution = execution
        self._failures = failures
        self._name = scheduler.spec.name
        from headrace.store.leases import owner_name

        self._store = context.need_store(f"pressure='spill' of handler {self._name}")
        self._alarms = context.alarms
        self._large_rows = context.large_rows
        self._owner = owner_name()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._is_spilling = False
        self._thread = threading.Thread(target=self._work, name=f"{self._name}-spill", daemon=True)

    def start(self) -> None:
        """Start running what is in the spill."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current message, and give the others back."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def put(self, records: Sequence[ConsumedRecord]) -> None:
        """Store records; durable when it returns, so they count as done."""
        messages = [self._large_rows.to_row(Message.from_record(record)) for record in records]
        with self._store.begin() as tx:
            self._store.spill.put(tx, self._name, messages)
        if not self._is_spilling:
            self._is_spilling = True
            self._alarms.ring(
                "spill",
                f"{self._name} cannot keep up: messages go to the store until it can",
                handler=self._name,
                messages=len(messages),
            )
        self._wake.set()

    def _work(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                ran = self._run_some()
            except Exception as problem:
                # Leases expire by themselves, so nothing is lost.
                _log.warning("the spill of %s pauses: %s", self._name, problem)
                ran = 0
            if not ran:
                self._wake.wait(POLL_MS / 1000)

    def _run_some(self) -> int:
        scheduler = self._scheduler
        if scheduler.lanes.messages > scheduler.spec.buffer_messages // 2:
            return 0
        limit = min(TAKEN_MAX, scheduler.pace.chunk)
        taken = self._store.spill.take(self._name, limit, owner=self._owner)
        if not taken:
            self._is_spilling = False
        for index, (seq, message) in enumerate(taken):
            if self._stop.is_set():
                self._store.spill.release([spilled.seq for spilled in taken[index:]])
                break
            self._run(seq, self._large_rows.from_row(message))
        return len(taken)

    def _run(self, seq: int, message: Message) -> None:
        try:
            self._execution.execute_one(
                self._execution.spec.identify(message),
                lambda tx: self._store.spill.done(tx, [seq]),
            )
        except BaseException as error:
            # Even SystemExit: a handler that calls sys.exit() must not end this thread.
            if isinstance(error, Unavailable):
                raise
            self._failures.give_up(message, error, 1)
            with self._store.begin() as tx:
                self._store.spill.done(tx, [seq])

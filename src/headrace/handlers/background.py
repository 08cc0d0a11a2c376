"""Tasks beside the handlers: retries, the outbox relay, and cleaning up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.handlers.context import AppContext
    from headrace.handlers.runner import Runner
    from headrace.store import Store

CLEAN_EVERY_MS = 60_000
COLLECT_EVERY_MS = 3_600_000
DAY_MS = 86_400_000
CONFIRM_POLL_SECONDS = 1.0
JOIN_SECONDS = 10.0

_log = logging.getLogger("headrace.app")


class BackgroundTasks:
    """Threads that work on the store's tables and on the bodies of large messages."""

    def __init__(self, context: AppContext, runners: Sequence[Runner]) -> None:
        self._context = context
        self._runners = runners
        self._stop = threading.Event()
        self._stops: list[Callable[[], None]] = [self._stop.set]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the tasks that this app needs."""
        store = self._context.store
        if self._context.large is not None:
            self._start_thread("large-garbage", self._collect)
        if store is None:
            return
        for runner in self._runners:
            self._retry(store, runner)
        self._relay(store)
        self._start_thread("outbox-confirmations", lambda: self._confirmations(store))
        self._start_thread("inbox-cleaning", lambda: self._clean(store))

    def stop(self) -> None:
        """Stop the tasks; each finishes its current step."""
        for stop in self._stops:
            stop()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _retry(self, store: Store, runner: Runner) -> None:
        from headrace.handlers.retries import RetryJob

        job = RetryJob(
            runner.spec.name, store, runner.failures, self._context.clock, runner.execute_one
        )
        self._stops.append(job.stop)
        self._start_thread(f"{runner.spec.name}-retry", job.run)

    def _relay(self, store: Store) -> None:
        from headrace.outbox.relay import Relay

        context = self._context
        relay = Relay(
            store, context.producer, switches=context, clock=context.clock, alarms=context.alarms
        )
        self._start_thread("outbox-relay", lambda: relay.run(self._stop))

    def _confirmations(self, store: Store) -> None:
        """Read confirmations once some message awaits one."""
        from headrace.outbox.confirmations import ConfirmationReader
        from headrace.store.errors import StoreError

        context = self._context
        while not self._stop.wait(CONFIRM_POLL_SECONDS):
            try:
                is_awaited = store.outbox.next_due_ms() is not None
            except StoreError:
                continue
            if is_awaited:
                settings = {"bootstrap.servers": context.bootstrap, **context.settings}
                ConfirmationReader(store, settings).run(self._stop)

    def _clean(self, store: Store) -> None:
        from headrace.store.errors import StoreError
        from headrace.store.inbox import KEEP_MS

        clock = self._context.clock
        # Once a minute of real time is enough, however fast a virtual clock runs.
        while not clock.wait(self._stop, DAY_MS, poll_ms=CLEAN_EVERY_MS):
            try:
                while store.inbox.clean(clock.now_ms() - KEEP_MS) and not self._stop.is_set():
                    pass
            except StoreError as problem:
                _log.warning("the inbox was not cleaned: %s", problem)

    def _collect(self) -> None:
        from headrace.handlers.large import LargeGarbage

        garbage = LargeGarbage(self._context)
        clock = self._context.clock
        while True:
            try:
                garbage.collect()
            except Exception as problem:
                _log.warning("unneeded bodies of large messages were not removed: %s", problem)
            if clock.wait(self._stop, DAY_MS, poll_ms=COLLECT_EVERY_MS):
                return

    def _start_thread(self, name: str, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

"""Retries the messages in one handler's retry table, in every process that runs the handler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.errors import Unavailable
from headrace.handlers.dead_letters import check_lease
from headrace.store.errors import Fenced, StoreUnavailable
from headrace.store.leases import owner_name

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.message import Message
    from headrace.handlers.failures import Failures
    from headrace.store import Store, Transaction
    from headrace.store.retries import ParkedMessage

LEASE_MS = 30_000
TAKEN_MAX = 50
# How late it may notice what another process has parked, made due or left behind.
POLL_MS = 1_000
PAUSE_MS = 1_000
IDLE_MS = 86_400_000
REFRESH_MS = 10_000

# Runs the handler on a message; once it has succeeded, calls the second argument inside its
# transaction, if it has one.
Execute = Callable[["Message", "Callable[[Transaction], None]"], None]

_log = logging.getLogger("headrace.retry")


class RetryJob:
    """Tries parked messages when they are due, and sends late dead letters.

    A message is leased while its handler runs. It is removed in the handler's own transaction or,
    for a handler without one, in a transaction that follows.
    """

    def __init__(
        self,
        handler: str,
        store: Store,
        failures: Failures,
        clock: Clock,
        execute: Execute,
        *,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._handler = handler
        self._store = store
        self._failures = failures
        self._clock = clock
        self._execute = execute
        self._lease_ms = lease_ms
        self.owner = owner_name()
        self._refresh_at_ms = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        failures.on_parked = self._wake.set

    def step(self) -> int:
        """Try what is due now, one message after the other; returns how many."""
        now_ms = self._clock.now_ms()
        taken = self._store.retries.lease(
            self._handler, self.owner, now_ms, self._lease_ms, TAKEN_MAX
        )
        if taken:
            with _Renewal(self._store, self._handler, self.owner, self._clock, self._lease_ms):
                for parked in taken:
                    if self._stop.is_set():
                        self._store.retries.release(self._handler, self.owner)
                        break
                    self._try(parked)
        self._failures.dead_letters.send_late()
        self._refresh()
        return len(taken)

    def run(self) -> None:
        """Work until `stop`, through outages of the store and the brokers."""
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause_ms = 0 if self.step() else self._until_due_ms()
            except Exception as problem:
                # Leases expire by themselves, so what was not finished is taken up again.
                is_expected = isinstance(problem, StoreUnavailable)
                _log.warning(
                    "retries of %s pause: %s",
                    self._handler,
                    problem,
                    exc_info=not is_expected,
                )
                pause_ms = PAUSE_MS
            if pause_ms and not self._stop.is_set():
                self._clock.wait(self._wake, pause_ms, poll_ms=POLL_MS)

    def stop(self) -> None:
        """Let `run` end after the current message, and give the others back."""
        self._stop.set()
        self._wake.set()

    def _try(self, parked: ParkedMessage) -> None:
        is_removed = False

        def remove(tx: Transaction) -> None:
            nonlocal is_removed
            check_lease(self._store.retries.remove(tx, parked), parked.message)
            is_removed = True

        try:
            self._execute(parked.message, remove)
            if not is_removed:
                with self._store.begin() as tx:
                    remove(tx)
        except StoreUnavailable:
            # Not the message's fault, so it does not count as an attempt.
            raise
        except Fenced as problem:
            _log.info("%s", problem)
        except Unavailable as problem:
            # Nor is this. Its lease expires and it is retried; the others do not wait for it.
            _log.warning("%s is retried later: %s", parked.message.source, problem)
        except BaseException as error:
            # Even SystemExit, which would end this thread and with it all retries.
            self._fail(parked, error)

    def _fail(self, parked: ParkedMessage, error: BaseException) -> None:
        try:
            self._failures.failed_again(parked, error)
        except StoreUnavailable:
            raise
        except Fenced as problem:
            _log.info("%s", problem)
        except Exception as problem:
            # Its lease expires and it is retried; the others do not wait for it.
            _log.warning("%s could not be put away: %s", parked.message.source, problem)

    def _refresh(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._refresh_at_ms:
            self._refresh_at_ms = now_ms + REFRESH_MS
            self._failures.refresh()

    def _until_due_ms(self) -> int:
        due_ms = self._store.retries.next_due_ms(self._handler)
        return IDLE_MS if due_ms is None else max(1, due_ms - self._clock.now_ms())


class _Renewal:
    """Renews an owner's leases while its block runs."""

    def __init__(self, store: Store, handler: str, owner: str, clock: Clock, lease_ms: int) -> None:
        self._store = store
        self._handler = handler
        self._owner = owner
        self._clock = clock
        self._lease_ms = lease_ms
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"renew-{handler}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._is_done.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._clock.wait(self._is_done, self._lease_ms // 3):
            try:
                until_ms = self._clock.now_ms() + self._lease_ms
                self._store.retries.renew(self._handler, self._owner, until_ms)
            except StoreUnavailable as problem:
                _log.warning("the leases of %s were not renewed: %s", self._handler, problem)

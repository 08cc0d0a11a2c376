"""The job that works the retry table of one handler, in as many processes as run the handler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.errors import Unavailable
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
# How late it may notice what another process has parked, hurried or left behind.
POLL_MS = 1_000
PAUSE_MS = 1_000
IDLE_MS = 86_400_000
REFRESH_MS = 10_000

# Runs the handler on a message, and calls the second argument inside the handler's transaction,
# if there is one, once the handler has succeeded.
Execute = Callable[["Message", "Callable[[Transaction], None]"], None]

_log = logging.getLogger("headrace.retry")


class RetryJob:
    """Tries parked messages when they are due, and sends dead letters that a crash left behind.

    A message is taken by a lease, renewed while its handler runs. It leaves the table in the
    handler's own transaction, or, of a handler without one, in one that follows.
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
        """Try what is due now, one after the other; how many messages it were."""
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
        """Work until `stop`; while the store or the brokers are away, it pauses and goes on."""
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause_ms = 0 if self.step() else self._until_due_ms()
            except Exception as problem:
                # Leases run out by themselves, so whatever was not finished is taken up again.
                is_expected = isinstance(problem, StoreUnavailable)
                _log.warning(
                    "the retry job of %s pauses: %s",
                    self._handler,
                    problem,
                    exc_info=not is_expected,
                )
                pause_ms = PAUSE_MS
            if pause_ms and not self._stop.is_set():
                self._clock.wait(self._wake, pause_ms, poll_ms=POLL_MS)

    def stop(self) -> None:
        """Let `run` end after the message that is being tried, and give the others back."""
        self._stop.set()
        self._wake.set()

    def _try(self, parked: ParkedMessage) -> None:
        is_removed = False

        def remove(tx: Transaction) -> None:
            nonlocal is_removed
            if not self._store.retries.remove(tx, parked):
                raise Fenced(f"{parked.message.source} has been taken over by another process")
            is_removed = True

        try:
            self._execute(parked.message, remove)
            if not is_removed:
                with self._store.begin() as tx:
                    remove(tx)
        except StoreUnavailable:
            # No fault of the message: it is not counted as an attempt.
            raise
        except Fenced as problem:
            _log.info("%s", problem)
        except Unavailable as problem:
            # Nor is this. Its lease expires and it is retried; the others do not wait for it.
            _log.warning("%s is retried later: %s", parked.message.source, problem)
        except BaseException as error:
            # Such as a SystemExit: it would end this thread, and with it everybody's retries.
            self._fail(parked, error)

    def _fail(self, parked: ParkedMessage, error: BaseException) -> None:
        try:
            self._failures.failed_again(parked, error)
        except StoreUnavailable:
            raise
        except Fenced as problem:
            _log.info("%s", problem)
        except Exception as problem:
            # Its lease runs out and it is tried again; the others are not to wait for that.
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
    """Renews an owner's leases for as long as its block takes."""

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

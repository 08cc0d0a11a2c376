"""The outcome of a sent record, for callers that wait, await or check later."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from headrace.client.errors import DeliveryFailed
from headrace.client.interceptors import Chain

LOG_PAUSE_SECONDS = 1.0

_log = logging.getLogger("headrace.client")
# Guards the waiters of all records: there are few, and it is held for nanoseconds.
_waiting = threading.Lock()


class _Failures:
    """Logs that records failed, at most once a second, whether or not a caller waits for them."""

    def __init__(self) -> None:
        self._count = 0
        self._quiet_until_s = 0.0

    def note(self, topic: str, error: Any) -> None:
        self._count += 1
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + LOG_PAUSE_SECONDS
            _log.warning(
                "records not written: %s, the last to %s: %s", self._count, topic, error.str()
            )
            self._count = 0


_failures = _Failures()


class RecordMetadata(NamedTuple):
    """Where a record was written; the offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnDelivery = Callable[[RecordMetadata | None, DeliveryFailed | None], object]


class Sent:
    """The outcome of one record, now or later; `result()` waits for it, `await` as well.

    A caller that stops waiting (timeout, cancelled task) changes nothing about the record.
    """

    __slots__ = ("_error", "_message", "_waiters")

    def __init__(self) -> None:
        # Called for every record, so nothing is created here that few need.
        self._message: Any = None
        self._error: Any = None
        self._waiters: list[Callable[[], None]] | None = None

    def __call__(self, error: Any, message: Any) -> None:
        """Called by the library when the record is written or has failed."""
        # The report has a copy of the value, which the caller has already.
        message.set_value(None)
        self._error = error
        self._message = message
        if error is not None:
            _failures.note(message.topic(), error)
        if self._waiters is not None:
            with _waiting:
                waiters, self._waiters = self._waiters, None
            for wake in waiters:
                wake()

    def done(self) -> bool:
        """Whether it is written or has failed."""
        return self._message is not None

    def exception(self) -> DeliveryFailed | None:
        """Why it failed, if it has."""
        return None if self._error is None else _failure(self._error, self._message)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until it is written; DeliveryFailed if it was not, TimeoutError if still open."""
        if self._message is None:
            woken = threading.Event()
            if self._wake_later(woken.set) and not woken.wait(timeout):
                raise TimeoutError(f"the record is not confirmed after {timeout} s")
        return self._outcome()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if self._message is None:
            loop = asyncio.get_running_loop()
            woken: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                if not woken.done():
                    woken.set_result(None)

            if self._wake_later(lambda: _call_soon(loop, wake)):
                yield from woken
        return self._outcome()

    def _wake_later(self, wake: Callable[[], None]) -> bool:
        """Call `wake` at the end; False if the outcome is known already."""
        with _waiting:
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(wake)
        # The report may have come in between, before the waiter was added.
        return self._message is None

    def _outcome(self) -> RecordMetadata:
        if self._error is not None:
            raise _failure(self._error, self._message)
        return _metadata(self._message)


class Watched(Sent):
    """The outcome of a record that has a callback or interceptors."""

    __slots__ = ("_chain", "_on_delivery")

    def __init__(self, on_delivery: OnDelivery | None, chain: Chain) -> None:
        super().__init__()
        self._on_delivery = on_delivery
        self._chain = chain

    def __call__(self, error: Any, message: Any) -> None:
        metadata = None if error is not None else _metadata(message)
        failure = None if error is None else _failure(error, message)
        if self._chain:
            self._chain.tell("on_acknowledgement", metadata, failure)
        if self._on_delivery is not None:
            try:
                self._on_delivery(metadata, failure)
            except Exception:
                _log.exception("the callback of a record to %s failed", message.topic())
        super().__call__(error, message)


def _metadata(message: Any) -> RecordMetadata:
    offset = message.offset()
    return RecordMetadata(
        message.topic(),
        message.partition(),
        -1 if offset is None else offset,
        message.timestamp()[1],
    )


def _failure(error: Any, message: Any) -> DeliveryFailed:
    return DeliveryFailed(
        f"a record to {message.topic()} was not written: {error.str()}", error=error
    )


def _call_soon(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:
        # The loop was closed meanwhile, so no task awaits the record.
        _log.debug("a record was confirmed after its event loop had closed")

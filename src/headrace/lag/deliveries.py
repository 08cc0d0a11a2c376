"""Deliveries: notices on their way to notifiers, each notifier at its own pace."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping

from headrace.client.clock import Clock
from headrace.lag.notices import Notice
from headrace.lag.notifiers import Notifier, NotifyFailed

QUEUE_MAX = 1000
FIRST_PAUSE_MS = 500
JOIN_SECONDS = 10.0

_log = logging.getLogger("headrace.lag")


class Deliveries:
    """One thread for each notifier, so that a slow one holds neither the meter nor the others."""

    def __init__(self, notifiers: Mapping[str, Notifier], clock: Clock) -> None:
        self._clock = clock
        self._stop = threading.Event()
        self._queues: dict[str, queue.Queue[tuple[Notice, _Count]]] = {}
        self._threads = []
        for name, notifier in notifiers.items():
            self._queues[name] = queue.Queue(QUEUE_MAX)
            thread = threading.Thread(
                target=self._work, args=(name, notifier), name=f"lag-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def send(self, notice: Notice, names: Iterable[str], done: Callable[[], None]) -> None:
        """Tell these notifiers; `done` is called when each has been told or was given up."""
        chosen = sorted(set(names) & self._queues.keys())
        count = _Count(len(chosen), done)
        if not chosen:
            done()
        for name in chosen:
            try:
                self._queues[name].put_nowait((notice, count))
            except queue.Full:
                _log.error("notifier %s has too much to tell; lost: %s", name, notice.text)
                count.down()

    def close(self) -> None:
        """End; what is not told by now stays untold, and `done` is not called for it."""
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _work(self, name: str, notifier: Notifier) -> None:
        while not self._stop.is_set():
            try:
                notice, count = self._queues[name].get(timeout=0.1)
            except queue.Empty:
                continue
            if self._tell(name, notifier, notice):
                count.down()

    def _tell(self, name: str, notifier: Notifier, notice: Notice) -> bool:
        """Tell it, again after growing pauses if need be; False if stopped before that ended."""
        for attempt in range(notifier.tries):
            if attempt and self._clock.wait(self._stop, FIRST_PAUSE_MS << (attempt - 1)):
                return False
            try:
                notifier.tell(notice)
                return True
            except NotifyFailed as failure:
                _log.warning("notifier %s, try %d: %s", name, attempt + 1, failure)
                if not failure.is_passing:
                    break
            except Exception:
                _log.exception("notifier %s, try %d", name, attempt + 1)
        _log.error("notifier %s was given up; lost: %s", name, notice.text)
        return True


class _Count:
    """Calls a function when it has been counted down."""

    def __init__(self, left: int, done: Callable[[], None]) -> None:
        self._left = left
        self._done = done
        self._lock = threading.Lock()

    def down(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._done()

"""A pool of threads that sync logs: one sync in flight per log, many appends per sync."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.storage.log.flush import Flush
    from headrace.storage.log.log import Log

_log = logging.getLogger(__name__)

RETRY_PAUSE_SECONDS = 0.1
"""The pause after a passing error before a sync is tried again."""

Callback = Callable[[OSError | None], None]
Post = Callable[..., object]
Job = tuple[Callable[..., object], tuple[Any, ...]]


class Threads:
    """A small thread pool: an executor's futures would cost as much as the rest of a sync.

    `submit` and `shutdown` are called on one thread.
    """

    def __init__(self, threads: int) -> None:
        self._threads_max = threads
        self._threads: list[threading.Thread] = []
        # None ends a thread.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def submit(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function on a thread; it posts its own result."""
        self._jobs.put((function, args))
        started = len(self._threads)
        if started < self._threads_max:
            # A process that ends without a shutdown must not wait for them forever.
            thread = threading.Thread(
                target=self._work, name=f"headrace-sync-{started}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads; the existing ones will do it
                if not started:
                    raise
            else:
                self._threads.append(thread)

    def shutdown(self) -> None:
        """Wait until all jobs are done."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, args = job
            try:
                function(*args)
            except Exception:
                _log.exception("a sync failed with an unexpected error")
            del job, function, args  # or files that are removed meanwhile would stay open


class Syncer:
    """Runs flushes off the loop thread; all methods are called on the loop thread.

    A request made while its log is being synced waits for the next sync, which covers everything
    written by then. `post` hands a call back to the loop thread (`loop.call_soon_threadsafe`).
    """

    def __init__(self, threads: int, post: Post) -> None:
        self._pool = Threads(threads)
        self._post = post
        # Logs that are being synced, each with the requests that came meanwhile.
        self._waiting: dict[Log, list[Callback]] = {}
        self._closing = threading.Event()

    def request(self, log: Log, callback: Callback) -> None:
        """Sync what a log has written by now; callback gets None, or the error, once.

        After a passing error, such as too many open files, callback gets None, a little later,
        though `synced_offset` has not moved: ask again. A log that is offline is not synced
        again: the kernel may have dropped what it failed to write, and a second sync would
        wrongly succeed.
        """
        waiting = self._waiting.get(log)
        if waiting is not None:
            waiting.append(callback)
        else:
            self._start(log, [callback])

    def close(self) -> None:
        """Wait for the syncs in flight and stop the threads."""
        self._closing.set()
        self._pool.shutdown()

    def _start(self, log: Log, callbacks: list[Callback]) -> None:
        if self._closing.is_set():
            return  # no caller is left
        flush = log.begin_flush() if log.offline_error is None else None
        if flush is None:
            for callback in callbacks:
                callback(log.offline_error)
            return
        self._waiting[log] = []
        self._pool.submit(self._run, log, flush, callbacks)

    def _run(self, log: Log, flush: Flush, callbacks: list[Callback]) -> None:
        flush.run()
        if flush.postponed is not None:
            _log.warning("%s cannot be synced yet: %s", log.dir, flush.postponed)
            self._closing.wait(RETRY_PAUSE_SECONDS)
        self._post(self._finish, log, flush, callbacks)

    def _finish(self, log: Log, flush: Flush, callbacks: list[Callback]) -> None:
        log.complete_flush(flush)
        asked_meanwhile = self._waiting.pop(log)
        for callback in callbacks:
            callback(flush.error)
        if asked_meanwhile:
            self._start(log, asked_meanwhile)

"""Requests that wait: each completes when its condition comes true, or when its time is up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable

from headrace.broker.timers import Timers
from headrace.timing.wheel import Timer

log = logging.getLogger(__name__)


class Waiting:
    """A request that waits under some keys until `try_complete` says it is done."""

    __slots__ = ("_entry", "done", "keys")

    def __init__(self) -> None:
        self.done = False
        self.keys: tuple[Hashable, ...] = ()
        self._entry: Timer[Callable[[], None]] | None = None

    def try_complete(self) -> bool:
        """Answer and return True if the condition holds now; else change nothing."""
        raise AssertionError("a waiting request must say when it is complete")

    def expire(self) -> None:
        """Answer with what there is: the time is up."""
        raise AssertionError("a waiting request must say what happens when its time is up")


class Purgatory:
    """Waiting requests by key, with their deadlines on a timing wheel.

    A key is whatever makes a condition come true; here it is the partition that grew.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_key: dict[Hashable, dict[Waiting, None]] = {}
        self.size = 0

    def park(self, waiting: Waiting, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Hold a request that could not complete now."""
        waiting.keys = tuple(keys)
        for key in waiting.keys:
            watchers = self._by_key.get(key)
            if watchers is None:
                watchers = self._by_key[key] = {}
            watchers[waiting] = None
        self.size += 1

        def expire() -> None:
            waiting._entry = None
            if not waiting.done:
                self.forget(waiting)
                waiting.expire()

        waiting._entry = self._timers.call_later(timeout_ms, expire)

    def check(self, key: Hashable) -> None:
        """Something about `key` changed: complete what can be completed, oldest first."""
        watchers = self._by_key.get(key)
        if watchers:
            for waiting in tuple(watchers):
                if waiting.done:
                    continue
                try:
                    completed = waiting.try_complete()
                except Exception:
                    # One request's trouble must not keep the others waiting.
                    log.exception("a waiting request failed")
                    completed = True
                if completed:
                    self.forget(waiting)

    def expire_all(self) -> None:
        """Answer everybody with what there is, as if their time were up."""
        for watchers in tuple(self._by_key.values()):
            for waiting in tuple(watchers):
                if not waiting.done:
                    self.forget(waiting)
                    waiting.expire()

    def has_waiting(self, key: Hashable) -> bool:
        """Whether anything waits under `key`."""
        return key in self._by_key

    def forget(self, waiting: Waiting) -> None:
        """Stop holding a request, without answering it (its client is gone)."""
        if waiting.done:
            return
        waiting.done = True
        self.size -= 1
        for key in waiting.keys:
            watchers = self._by_key.get(key)
            if watchers is not None:
                watchers.pop(waiting, None)
                if not watchers:
                    del self._by_key[key]
        if waiting._entry is not None:
            waiting._entry.cancel()
            waiting._entry = None

"""The handle of a submitted job: what became of it, for callers that wait, await or look later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any

_Waiter = Callable[[], None]
# Guards the lists of waiters of all handles: they are few and held for nanoseconds.
_waiting = threading.Lock()


class Handle:
    """A job on its way; `await handle` or `handle.result()` gives the worker's answer.

    JobFailed if the worker raised. Who stops waiting (timeout, cancelled task) changes nothing
    about the job, and nobody has to wait.
    """

    __slots__ = ("__weakref__", "_answer", "_error", "_is_done", "_waiters", "id")

    def __init__(self, id: str) -> None:
        self.id = id
        self._is_done = False
        self._answer: Any = None
        self._error: BaseException | None = None
        self._waiters: list[_Waiter] | None = None

    def done(self) -> bool:
        """Whether the job is finished, well or not."""
        return self._is_done

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the worker's answer; TimeoutError if the job is still open then."""
        if not self._is_done:
            woken = threading.Event()
            if self._wake_later(woken.set) and not woken.wait(timeout):
                raise TimeoutError(f"job {self.id} is not finished after {timeout} s")
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._is_done:
            loop = asyncio.get_running_loop()
            woken: asyncio.Future[None] = loop.create_future()
            if self._wake_later(lambda: resolve(loop, woken)):
                yield from woken
        return self._outcome()

    def finish(self, answer: Any, error: BaseException | None = None) -> None:
        """Called once by the dispatcher, when TOPIC.done says what became of the job."""
        self._answer, self._error = answer, error
        with _waiting:
            self._is_done = True
            waiters, self._waiters = self._waiters, None
        for wake in waiters or ():
            wake()

    def _wake_later(self, wake: _Waiter) -> bool:
        """Have it called at the end; False if that has been already."""
        with _waiting:
            if self._is_done:
                return False
            self._waiters = [*(self._waiters or ()), wake]
        return True

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._answer


def resolve(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[None],
    error: BaseException | None = None,
) -> None:
    """Resolve a future of a loop from another thread; a loop that has ended waits for nothing."""

    def settle() -> None:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)

"""The loop of every call that is retried while its failure may pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def retry(
    attempt: Callable[[], T],
    pause_s: Callable[[Exception], float | None],
    *,
    timeout_s: float = float("inf"),
    attempts_max: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call `attempt` until it returns; `pause_s(error)` is how long to wait after it.

    The error is raised if `pause_s` returns None, the time is over or it was the last attempt.
    """
    deadline_s = clock() + timeout_s
    attempts = 0
    while True:
        attempts += 1
        try:
            return attempt()
        except Exception as error:
            wait_s = pause_s(error)
            if wait_s is None or attempts == attempts_max or clock() > deadline_s:
                raise
        if wait_s:
            time.sleep(wait_s)

"""Waits for conditions: the only way in which a test lets real time pass.

A limit says when to give up on a condition, not how fast it must come true, so it is generous: a
busy machine must not fail a test. A test that promises a time measures it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

WAIT_SECONDS = 120.0
POLL_SECONDS = 0.01


def wait_until(
    condition: Callable[[], object], what: str = "", seconds: float = WAIT_SECONDS
) -> None:
    """Wait until a condition holds; AssertionError with its name if it does not in time."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, _message(condition, what, seconds)
        pause.wait(POLL_SECONDS)


async def wait_until_async(
    condition: Callable[[], object], what: str = "", seconds: float = WAIT_SECONDS
) -> None:
    """`wait_until` for a condition that the running event loop brings about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, _message(condition, what, seconds)
        await asyncio.sleep(POLL_SECONDS)


def _message(condition: Callable[[], object], what: str, seconds: float) -> str:
    return f"not within {seconds:g} s: {what or condition}"

"""Work that finishes even when its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# The loop keeps only weak references to tasks; these references keep shielded work alive.
_running: set[asyncio.Task[Any]] = set()


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Await work that must not stop halfway; on cancel it continues without its caller."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_done)
    return await asyncio.shield(task)


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        # If nobody waits any more, asyncio must not report the exception as lost.
        task.exception()

"""Work that goes on to its end when the one who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# The loop keeps only weak references to tasks; these are the work that nobody waits for any more.
_running: set[asyncio.Task[Any]] = set()


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that must not stop half-way; on cancel it goes on without its caller."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_done)
    return await asyncio.shield(task)


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        # Whoever still waits gets the exception; if nobody does, it is not "never retrieved".
        task.exception()

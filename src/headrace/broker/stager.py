"""Threads that write large batches to their files while the loop receives and checks others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.storage.staging import Stage

# Smaller batches cost less to write than to hand over.
STAGE_BYTES_MIN = 256 * 1024
_THREADS = 2
_POLL_SECONDS = 0.005


class Stager:
    """Writes batches ahead of their appends, off the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="headrace-write")
        self._under_way = 0

    def run(self, stage: Stage, done: Callable[[], None]) -> None:
        """Write, then call `done` on the loop, whatever became of it."""
        self._under_way += 1

        def finish() -> None:
            self._under_way -= 1
            done()

        def work() -> None:
            stage.run()
            self._loop.call_soon_threadsafe(finish)

        self._pool.submit(work)

    async def close(self) -> None:
        """Return when nothing is being written any more."""
        while self._under_way:
            await asyncio.sleep(_POLL_SECONDS)
        self._pool.shutdown(wait=False)

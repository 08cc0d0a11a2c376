"""The event loop on which async handlers run, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cached_property
from typing import Any

from headrace.errors import HandlerError

LOOP_STOP_SECONDS = 10.0


class LoopThread:
    """The one event loop on which all async handlers run; started when first needed."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="headrace-async", daemon=True)
        self._thread.start()
        return loop

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop from another thread and return its result."""
        if self.__dict__.get("_thread") is threading.current_thread():
            # Waiting for the loop on its own thread would block it forever.
            work.close()
            raise HandlerError("an async handler blocked on async work", "use `async with` there")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """Cancel what still runs and end the thread; does nothing if it never started."""
        loop: asyncio.AbstractEventLoop | None = self.__dict__.pop("loop", None)
        if loop is None:
            return

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=LOOP_STOP_SECONDS) if others else None
            await loop.shutdown_asyncgens()

        asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(2 * LOOP_STOP_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(LOOP_STOP_SECONDS)
        loop.close()

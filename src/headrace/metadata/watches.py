"""The watches of a metadata store: each waits until its store wakes it."""

from __future__ import annotations

import asyncio
from typing import Self


class StoreWatch:
    """A watch on a path and all below it, in the set of its store's watches."""

    def __init__(self, prefix: str, watches: set[Self]) -> None:
        self.prefix = prefix
        self._watches = watches
        self._woken = asyncio.Event()

    async def changed(self) -> None:
        """Return once something has changed since the last return."""
        await self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        """Something changed."""
        self._woken.set()

    def close(self) -> None:
        """Stop watching."""
        self._watches.discard(self)

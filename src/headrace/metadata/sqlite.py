"""The metadata store of one machine: an SQLite file, used on its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from headrace.metadata.sessions import RENEWALS_PER_TIMEOUT, system_monotonic_ms
from headrace.metadata.sqlite_tree import Tree
from headrace.metadata.store import MetadataEntry, Op, StoreUnavailableError, check_path, covers
from headrace.metadata.watches import StoreWatch

FILE_NAME = "metadata.sqlite"
# How soon changes of other processes are noticed.
POLL_MS = 50

P = ParamSpec("P")
T = TypeVar("T")


class SqliteStore:
    """A metadata store in a file, which the processes of one machine may share."""

    def __init__(self, tree: Tree, thread: ThreadPoolExecutor, poll_ms: int) -> None:
        self._tree = tree
        self._thread = thread
        self._poll_ms = poll_ms
        self._sessions: dict[int, SqliteSession] = {}
        self._watches: set[SqliteWatch] = set()
        self._data_version: int | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        monotonic_ms: Callable[[], int] = system_monotonic_ms,
        poll_ms: int = POLL_MS,
    ) -> SqliteStore:
        """Open or create the file; raises StoreUnavailableError if it is not a metadata store."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-metadata")
        try:
            loop = asyncio.get_running_loop()
            tree = await loop.run_in_executor(thread, Tree, path, monotonic_ms)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(tree, thread, poll_ms)

    async def read(self, path: str) -> MetadataEntry | None:
        return await self._call(self._tree.read, path)

    async def children(self, path: str) -> list[str]:
        return await self._call(self._tree.children, path)

    async def read_children(self, path: str) -> dict[str, MetadataEntry]:
        return await self._call(self._tree.read_children, path)

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        return await self._call(self._tree.multi, ops)

    async def watch(self, prefix: str) -> SqliteWatch:
        check_path(prefix)
        watch = SqliteWatch(prefix, self._watches)
        watch.fingerprint = await self._call(self._tree.fingerprint, prefix)
        self._watches.add(watch)
        self._start_ticking()
        return watch

    async def session(self, timeout_ms: int) -> SqliteSession:
        session_id = await self._call(self._tree.begin_session, timeout_ms)
        session = SqliteSession(session_id, timeout_ms, self)
        self._sessions[session_id] = session
        self._start_ticking()
        return session

    async def end_session(self, session: SqliteSession) -> None:
        """End an own session and remove its entries."""
        self._sessions.pop(session.id, None)
        session.expired = True
        await self._call(self._tree.end_session, session.id)

    async def close(self) -> None:
        if self._closed:
            return
        for session in list(self._sessions.values()):
            with contextlib.suppress(StoreUnavailableError):
                await session.close()
        await self.abandon()

    async def abandon(self) -> None:
        """Close the file as a crash would: own sessions stay until their deadline."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        await asyncio.get_running_loop().run_in_executor(self._thread, self._tree.close)
        self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on the store's thread; watches of changed paths wake before it returns."""
        if self._closed:
            raise StoreUnavailableError("the metadata store is closed")

        def job() -> tuple[T, set[str]]:
            result = function(*args, **kwargs)
            return result, self._tree.take_touched()

        loop = asyncio.get_running_loop()
        try:
            result, touched = await loop.run_in_executor(self._thread, job)
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"the metadata store failed: {error}") from error
        if touched:
            for watch in self._watches:
                if any(covers(watch.prefix, path) for path in touched):
                    watch.wake()
        return result

    def _start_ticking(self) -> None:
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.get_running_loop().create_task(self._run_ticker())

    async def _run_ticker(self) -> None:
        loop = asyncio.get_running_loop()
        renewal_at = loop.time()
        while self._sessions or self._watches:
            with contextlib.suppress(StoreUnavailableError):
                # Requests report a failing disk; here, try again.
                if self._sessions and loop.time() >= renewal_at:
                    timeout_ms = min(session.timeout_ms for session in self._sessions.values())
                    renewal_at = loop.time() + timeout_ms / RENEWALS_PER_TIMEOUT / 1000
                    await self._drop_expired(self._tree.renew_session)
                await self._notice_changes()
            await asyncio.sleep(self._poll_ms / 1000)

    async def _drop_expired(self, is_alive: Callable[[int], bool]) -> None:
        for session in list(self._sessions.values()):
            if not await self._call(is_alive, session.id):
                session.expired = True
                self._sessions.pop(session.id, None)

    async def _notice_changes(self) -> None:
        await self._call(self._tree.expire_sessions)
        await self._drop_expired(self._tree.session_exists)
        data_version = await self._call(self._tree.data_version)
        if data_version == self._data_version:
            return
        self._data_version = data_version
        for watch in list(self._watches):
            fingerprint = await self._call(self._tree.fingerprint, watch.prefix)
            if fingerprint != watch.fingerprint:
                watch.fingerprint = fingerprint
                watch.wake()


class SqliteSession:
    """A session that its store renews."""

    def __init__(self, session_id: int, timeout_ms: int, store: SqliteStore) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.expired = False
        self._store = store

    async def close(self) -> None:
        """End the session now and remove its entries."""
        await self._store.end_session(self)


class SqliteWatch(StoreWatch):
    """A watch with a fingerprint of what was below its path the last time."""

    fingerprint: tuple[int, int] = (0, 0)

"""The SQLite store: what its file endures."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from headrace.metadata.sqlite import FILE_NAME, SqliteStore
from headrace.metadata.store import Create, MetadataEntry, Set, StoreUnavailableError

KILLS = 6
WRITER = """
import asyncio, sys
from pathlib import Path
from headrace.metadata.sqlite import SqliteStore
from headrace.metadata.store import Create, Delete, Set

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    left = await store.read("/left")
    if left is None:
        await store.multi([Create("/left", b"0"), Create("/right", b"0"), Create("/odd")])
        left = await store.read("/left")
    number = int(left.data)
    while True:
        number += 1
        data = b"%d" % number
        odd = Create("/odd/one") if number % 2 else Delete("/odd/one")
        await store.multi([Set("/left", data), odd, Set("/right", data)])
        print(number, flush=True)

asyncio.run(main())
"""


MEMORY = Path("/dev/shm")


def run_until_killed(path: Path, delay_seconds: float) -> int:
    """Let the writer work, kill it with -9, and return the last number it said was durable."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    last = int(writer.stdout.readline())
    deadline = time.monotonic() + delay_seconds
    while time.monotonic() < deadline:
        last = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    # A line cut by the kill has no newline and promises nothing.
    rest = [line for line in writer.stdout.read().splitlines(keepends=True) if line[-1] == "\n"]
    writer.wait()
    return int(rest[-1]) if rest else last


def test_a_kill_at_any_point_leaves_whole_changes_and_all_acknowledged_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / FILE_NAME
    for kill in range(KILLS):
        acknowledged = run_until_killed(path, 0.013 * kill)

        async def check(acknowledged: int = acknowledged) -> None:
            store = await SqliteStore.open(path)
            left, right = await store.read("/left"), await store.read("/right")
            assert left is not None
            assert right is not None
            assert left.data == right.data
            # The one change under way at the kill may have happened.
            assert int(left.data) in (acknowledged, acknowledged + 1)
            odd = await store.children("/odd")
            assert odd == (["one"] if int(left.data) % 2 else [])
            await store.close()

        asyncio.run(check())


def test_an_empty_store_opens_fast(tmp_path: Path) -> None:
    async def open_ms(path: Path) -> float:
        begin = time.perf_counter()
        store = await SqliteStore.open(path)
        took = time.perf_counter() - begin
        await store.close()
        return took * 1000

    async def best() -> float:
        # In memory, since a busy disk says nothing about the store; and often, for the same reason.
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
            found = [await open_ms(Path(folder, "0"))]
            while min(found) >= 15 and len(found) < 100:
                found.append(await open_ms(Path(folder, str(len(found)))))
        return min(found)

    assert asyncio.run(best()) < 15


def test_commits_are_synced_through_a_write_ahead_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / FILE_NAME)
        await store.multi([Create("/a")])
        assert (tmp_path / (FILE_NAME + "-wal")).stat().st_size > 0
        tree = store._tree
        assert tree._db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert tree._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        await store.close()
        assert not (tmp_path / (FILE_NAME + "-wal")).exists()

    asyncio.run(scenario())


def open_and_read(path: Path) -> MetadataEntry | None:
    async def scenario() -> MetadataEntry | None:
        store = await SqliteStore.open(path)
        try:
            return await store.read("/a")
        finally:
            await store.close()

    return asyncio.run(scenario())


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(StoreUnavailableError, match="not a database"):
        open_and_read(path)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE entries (x)")
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(StoreUnavailableError, match="another program's"):
        open_and_read(path)


def test_a_newer_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    assert open_and_read(path) is None
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreUnavailableError, match="open it with the release that wrote it"):
        open_and_read(path)


def test_a_missing_folder_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        open_and_read(tmp_path / "nowhere" / FILE_NAME)


def test_a_failing_write_is_reported_and_reads_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / FILE_NAME)
        await store.multi([Create("/a", b"x")])
        store._tree._db.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreUnavailableError, match="readonly"):
            await store.multi([Set("/a", b"y")])
        assert await store.read("/a") == MetadataEntry(b"x", 0)
        store._tree._db.execute("PRAGMA query_only = 0")
        await store.multi([Set("/a", b"y")])
        assert await store.read("/a") == MetadataEntry(b"y", 1)
        await store.close()

    asyncio.run(scenario())


def test_sessions_from_before_a_reboot_are_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = await SqliteStore.open(tmp_path / FILE_NAME, monotonic_ms=lambda: 900_000)
        await before.multi([Create("/me", b"", await before.session(6000))])
        await before.abandon()
        after = await SqliteStore.open(tmp_path / FILE_NAME, monotonic_ms=lambda: 5_000)
        assert await after.read("/me") is None
        await after.close()

    asyncio.run(scenario())

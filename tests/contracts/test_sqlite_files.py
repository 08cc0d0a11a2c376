"""Every SQLite file that processes share waits for another process that is setting it up."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.metadata.sqlite_tree import Tree
from headrace.store import open_store


def open_metadata(path: Path) -> None:
    Tree(path, lambda: 0).close()


def open_tables(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    store.create()
    store.close()


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
@pytest.mark.parametrize("open_file", [open_metadata, open_tables])
def test_a_new_file_that_another_process_writes_to_is_waited_for(
    tmp_path: Path, open_file: Callable[[Path], None], lock: str
) -> None:
    path = tmp_path / "shared.db"
    # Not in WAL mode yet, as a file is while the first process to open it sets it up.
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute(f"BEGIN {lock}")
    release = threading.Timer(0.2, lambda: holder.execute("COMMIT"))
    release.start()
    open_file(path)
    release.join()
    holder.close()
    with sqlite3.connect(path) as found:
        assert found.execute("PRAGMA journal_mode").fetchone() == ("wal",)

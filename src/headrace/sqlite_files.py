"""SQLite files that several processes open at the same time."""

from __future__ import annotations

import sqlite3
import threading
import time

_POLL_SECONDS = 0.01


def use_wal(database: sqlite3.Connection | sqlite3.Cursor, timeout_s: float) -> None:
    """Switch a file to WAL mode, also while other processes do the same.

    SQLite refuses the switch at once, in spite of the busy timeout, while another connection writes
    to a file that is not in WAL mode yet.
    """
    deadline_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline_s:
                raise
        pause.wait(_POLL_SECONDS)

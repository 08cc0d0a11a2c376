"""The disposable cache of one state partition: entries with their bodies, in SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from headrace.ledger.machine import Entry, Place

# Of each partition that is owned.
PAGES_KB = 8_192

_SCHEMA = """
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, due INTEGER NOT NULL, kind TEXT NOT NULL,
    at INTEGER NOT NULL, part INTEGER NOT NULL, place INTEGER NOT NULL, count INTEGER NOT NULL,
    also TEXT, body BLOB NOT NULL
)
"""
_COLUMNS = "seq, id, due, kind, at, part, place, count, also"


class Held(NamedTuple):
    """An entry with its number."""

    seq: int
    entry: Entry


class Cache:
    """Entries by id and by due time; used by one thread, gone when it is closed or dies.

    In memory, unless it is made by `in_file`.
    """

    def __init__(self, database: sqlite3.Connection | None = None) -> None:
        self._database = database or sqlite3.connect(":memory:", isolation_level=None)
        run = self._database.execute
        # A crash loses the cache anyway, so nothing is journaled or synced, and the one
        # transaction is never committed: pages are written when there is no room for them.
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        run("PRAGMA locking_mode = EXCLUSIVE")
        run(f"PRAGMA cache_size = -{PAGES_KB}")
        run("BEGIN")
        run(_SCHEMA)
        run("CREATE INDEX by_id ON entry (id)")
        self._is_indexed = False
        self.count = 0

    @classmethod
    def in_file(cls, folder: Path | None = None) -> Self:
        """A cache that takes little memory; in the system's folder for temporary files if None."""
        file, path = tempfile.mkstemp(prefix="headrace-ledger-", dir=folder)
        os.close(file)
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # Nobody else ever opens it, and nothing is left behind, however this process ends.
        Path(path).unlink()
        return cls(database)

    def close(self) -> None:
        """Forget everything."""
        self._database.close()

    def find(self, ids: Iterable[str]) -> dict[str, Held]:
        """What is known of ids, without bodies."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM entry WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {row[1]: Held(row[0], _entry(row, b"")) for row in rows}

    def get(self, seqs: Sequence[int]) -> list[Held]:
        """Entries with their bodies, in order; those that are gone are left out."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS}, body FROM entry WHERE seq IN (SELECT value FROM json_each(?))",
            (json.dumps(seqs),),
        )
        found = {row[0]: Held(row[0], _entry(row, row[9])) for row in rows}
        return [found[seq] for seq in seqs if seq in found]

    def all(self) -> Iterator[Entry]:
        """Every entry with its body, the next due one first."""
        rows = self._database.execute(f"SELECT {_COLUMNS}, body FROM entry ORDER BY due, seq")
        return (_entry(row, row[9]) for row in rows)

    def put(self, new: Sequence[Held]) -> None:
        """Add entries with numbers that are not there."""
        self.count += len(new)
        self._database.executemany(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    seq, entry.id, entry.due_ms, entry.kind, entry.at_ms, entry.place.partition,
                    entry.place.offset, entry.count, _also(entry), entry.body,
                )
                for seq, entry in new
            ),
        )  # fmt: skip

    def update(self, changed: Sequence[Held]) -> None:
        """Write all but the bodies anew."""
        self._database.executemany(
            "UPDATE entry SET due = ?, kind = ?, at = ?, count = ?, also = ? WHERE seq = ?",
            (
                (entry.due_ms, entry.kind, entry.at_ms, entry.count, _also(entry), seq)
                for seq, entry in changed
            ),
        )

    def remove(self, seqs: Sequence[int]) -> None:
        """Delete entries that are there."""
        self._database.executemany("DELETE FROM entry WHERE seq = ?", ((seq,) for seq in seqs))
        self.count -= len(seqs)

    def next_due(self, after: tuple[int, int], until_ms: int, most: int) -> list[tuple[int, int]]:
        """(due, number) of the next ones after such a pair, in this order."""
        self._index()
        return self._database.execute(
            "SELECT due, seq FROM entry WHERE (due, seq) > (?, ?) AND due <= ? "
            "ORDER BY due, seq LIMIT ?",
            (*after, until_ms, most),
        ).fetchall()

    def first_due_ms(self) -> int | None:
        """The earliest due time of all."""
        self._index()
        first: int | None = self._database.execute("SELECT min(due) FROM entry").fetchone()[0]
        return first

    def _index(self) -> None:
        # Made when first asked for: once over all that was there is much cheaper than one by one.
        if not self._is_indexed:
            self._database.execute("CREATE INDEX by_due ON entry (due)")
            self._is_indexed = True


def _entry(row: tuple[int, str, int, str, int, int, int, int, str | None], body: bytes) -> Entry:
    _, id, due_ms, kind, at_ms, partition, offset, count, also = row[:9]
    others = tuple(Place(*pair) for pair in json.loads(also)) if also else ()
    return Entry(id, kind, due_ms, at_ms, Place(partition, offset), count, body, others)


def _also(entry: Entry) -> str | None:
    return json.dumps(entry.also) if entry.also else None

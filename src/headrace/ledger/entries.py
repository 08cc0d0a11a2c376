"""The entries of one state partition: those due soon in memory, the others in an SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from headrace.ledger.machine import CommandPosition, LedgerEntry

# Entries that are due soon but do not fit into this stay in the file.
NEAR_BYTES_MAX = 12_000_000
# What an entry takes beside its body.
ENTRY_BYTES = 500
# SQLite's page cache, for each owned partition.
PAGES_KB = 8_192

_SCHEMA = """
CREATE TABLE entry (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, due INTEGER NOT NULL, state TEXT NOT NULL,
    at INTEGER NOT NULL, part INTEGER NOT NULL, offset INTEGER NOT NULL, count INTEGER NOT NULL,
    others TEXT, body BLOB NOT NULL
)
"""
_COLUMNS = "seq, id, due, state, at, part, offset, count, others"

# Due time and number: the order of entries.
DueOrder = tuple[int, int]


class NumberedEntry(NamedTuple):
    """An entry with the number that it got when it was added; no number is used twice."""

    seq: int
    entry: LedgerEntry


class Entries:
    """All entries by number and by id; for one thread.

    "Near" entries are due before the horizon that the caller names and are kept in memory, "far"
    ones in the cache.
    """

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._near: dict[int, LedgerEntry] = {}
        self._seqs: dict[str, int] = {}
        self._near_bytes = 0
        self._last_seq = 0

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self._near) + self._cache.count

    def find(self, ids: set[str]) -> dict[str, NumberedEntry]:
        """The entries of ids; far ones come without their bodies."""
        seqs, near = self._seqs, self._near
        found = {}
        for id in ids & seqs.keys():
            seq = seqs[id]
            found[id] = NumberedEntry(seq, near[seq])
        if self._cache.count and len(found) < len(ids):
            found.update(self._cache.find(ids - found.keys()))
        return found

    def get(self, seqs: Sequence[int]) -> list[NumberedEntry]:
        """Entries with their bodies, in this order; deleted ones are left out."""
        near = self._near
        far = [seq for seq in seqs if seq not in near] if self._cache.count else ()
        if not far:
            return [NumberedEntry(seq, near[seq]) for seq in seqs if seq in near]
        found = {numbered.seq: numbered for numbered in self._cache.get(far)}
        for seq in seqs:
            if seq in near:
                found[seq] = NumberedEntry(seq, near[seq])
        return [found[seq] for seq in seqs if seq in found]

    def add(self, entries: Sequence[LedgerEntry], horizon: DueOrder) -> list[int]:
        """Add entries and return their numbers."""
        seqs = list(range(self._last_seq + 1, self._last_seq + 1 + len(entries)))
        self._last_seq += len(entries)
        far = []
        for seq, entry in zip(seqs, entries, strict=True):
            if (entry.due_ms, seq) <= horizon and self._near_bytes < NEAR_BYTES_MAX:
                self._near[seq] = entry
                self._seqs[entry.id] = seq
                self._near_bytes += len(entry.body) + ENTRY_BYTES
            else:
                far.append(NumberedEntry(seq, entry))
        if far:
            self._cache.add(far)
        return seqs

    def update(self, changed: Sequence[NumberedEntry], horizon: DueOrder) -> None:
        """Replace everything but the bodies."""
        far = []
        for numbered in changed:
            if numbered.seq not in self._near:
                far.append(numbered)
            elif (numbered.entry.due_ms, numbered.seq) <= horizon:
                self._near[numbered.seq] = numbered.entry
            else:
                self._remove_near(numbered.seq)
                self._cache.add([numbered])
        if far:
            self._cache.update(far)

    def remove(self, seqs: Sequence[int]) -> None:
        """Delete entries that exist."""
        far = [seq for seq in seqs if not self._remove_near(seq)]
        if far:
            self._cache.remove(far)

    def spill(self) -> None:
        """Move all near entries to the cache."""
        near = [NumberedEntry(seq, entry) for seq, entry in self._near.items()]
        self._near.clear()
        self._seqs.clear()
        self._near_bytes = 0
        if near:
            self._cache.add(near)

    def next_far(self, after: DueOrder, until_ms: int, entries_max: int) -> list[DueOrder]:
        """The next far entries after a point in the order."""
        return self._cache.next_due(after, until_ms, entries_max) if self._cache.count else []

    def first_far_ms(self) -> int | None:
        """The earliest due time of the far entries."""
        return self._cache.first_due_ms() if self._cache.count else None

    def _remove_near(self, seq: int) -> bool:
        entry = self._near.pop(seq, None)
        if entry is None:
            return False
        del self._seqs[entry.id]
        self._near_bytes -= len(entry.body) + ENTRY_BYTES
        return True


class EntryCache:
    """Entries in SQLite, by id and by due time; in memory unless made by `in_file`.

    It is disposable: everything in it is read again from the state topic. For one thread.
    """

    def __init__(self, database: sqlite3.Connection | None = None) -> None:
        self._database = database or sqlite3.connect(":memory:", isolation_level=None)
        run = self._database.execute
        # A crash loses the cache anyway, so nothing is journaled or synced, and the one
        # transaction is never committed: pages are written only when memory runs out.
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
        """A cache that takes little memory; None for the system's folder of temporary files."""
        file, path = tempfile.mkstemp(prefix="headrace-ledger-", dir=folder)
        os.close(file)
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # No other process opens it, and no file is left behind, however this process ends.
        Path(path).unlink()
        return cls(database)

    def close(self) -> None:
        """Delete everything."""
        self._database.close()

    def find(self, ids: Iterable[str]) -> dict[str, NumberedEntry]:
        """The entries of ids, without bodies."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM entry WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {row[1]: NumberedEntry(row[0], _entry(row, b"")) for row in rows}

    def get(self, seqs: Sequence[int]) -> list[NumberedEntry]:
        """Entries with their bodies, in this order; deleted ones are left out."""
        rows = self._database.execute(
            f"SELECT {_COLUMNS}, body FROM entry WHERE seq IN (SELECT value FROM json_each(?))",
            (json.dumps(seqs),),
        )
        found = {row[0]: NumberedEntry(row[0], _entry(row, row[9])) for row in rows}
        return [found[seq] for seq in seqs if seq in found]

    def all(self) -> Iterator[LedgerEntry]:
        """Every entry with its body, the next due one first."""
        rows = self._database.execute(f"SELECT {_COLUMNS}, body FROM entry ORDER BY due, seq")
        return (_entry(row, row[9]) for row in rows)

    def add(self, new: Sequence[NumberedEntry]) -> None:
        """Add entries with new numbers."""
        self.count += len(new)
        self._database.executemany(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    seq, entry.id, entry.due_ms, entry.state, entry.at_ms, *entry.position,
                    entry.count, _others(entry), entry.body,
                )
                for seq, entry in new
            ),
        )  # fmt: skip

    def update(self, changed: Sequence[NumberedEntry]) -> None:
        """Replace everything but the bodies."""
        self._database.executemany(
            "UPDATE entry SET due = ?, state = ?, at = ?, count = ?, others = ? WHERE seq = ?",
            (
                (entry.due_ms, entry.state, entry.at_ms, entry.count, _others(entry), seq)
                for seq, entry in changed
            ),
        )

    def remove(self, seqs: Sequence[int]) -> None:
        """Delete entries that exist."""
        self._database.executemany("DELETE FROM entry WHERE seq = ?", ((seq,) for seq in seqs))
        self.count -= len(seqs)

    def next_due(self, after: DueOrder, until_ms: int, entries_max: int) -> list[DueOrder]:
        """The next entries after a point in the order."""
        self._index()
        return self._database.execute(
            "SELECT due, seq FROM entry WHERE (due, seq) > (?, ?) AND due <= ? "
            "ORDER BY due, seq LIMIT ?",
            (*after, until_ms, entries_max),
        ).fetchall()

    def first_due_ms(self) -> int | None:
        """The earliest due time of all."""
        self._index()
        first: int | None = self._database.execute("SELECT min(due) FROM entry").fetchone()[0]
        return first

    def _index(self) -> None:
        # Created on first use: one pass over a full table is much cheaper than row by row.
        if not self._is_indexed:
            self._database.execute("CREATE INDEX by_due ON entry (due)")
            self._is_indexed = True


def _entry(
    row: tuple[int, str, int, str, int, int, int, int, str | None], body: bytes
) -> LedgerEntry:
    _, id, due_ms, state, at_ms, partition, offset, count, others = row[:9]
    positions = tuple(CommandPosition(*pair) for pair in json.loads(others)) if others else ()
    position = CommandPosition(partition, offset)
    return LedgerEntry(id, state, due_ms, at_ms, position, count, body, positions)


def _others(entry: LedgerEntry) -> str | None:
    return json.dumps(entry.other_positions) if entry.other_positions else None

"""`.txnindex`: the aborted transactions of a segment, for read_committed consumers.

An entry is a version (int16) and the producer id, first offset, last offset (of the abort marker)
and the last stable offset when it was aborted (int64 each), as Apache Kafka writes it. Entries
ascend by last offset. The file exists only when something was aborted.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.storage.files import File, FileSystem
from headrace.storage.sparse_index import CorruptIndex

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """A transaction whose records a read_committed consumer must skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The aborted transactions whose marker lies in one segment; read when first asked."""

    __slots__ = ("_aborted", "_file", "_fs", "_on_disk_bytes", "_unsynced", "path")

    def __init__(self, fs: FileSystem, path: str, on_disk_bytes: int = 0) -> None:
        self.path = path
        self._fs = fs
        self._file: File | None = None
        self._on_disk_bytes = on_disk_bytes
        self._unsynced = False
        self._aborted: list[AbortedTxn] | None = None if on_disk_bytes else []

    @property
    def aborted(self) -> list[AbortedTxn]:
        """All entries; raises CorruptIndex when the file cannot be right."""
        if self._aborted is None:
            self._aborted = self._load()
        return self._aborted

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry and write it; durable after `unsynced_file` was synced."""
        aborted = self.aborted
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
            if self._file.size != self._on_disk_bytes:
                self._file.truncate(self._on_disk_bytes)
        self._file.append(_ENTRY.pack(_VERSION, *entry))
        self._on_disk_bytes = self._file.size
        self._unsynced = True
        aborted.append(entry)

    def reset(self, entries: list[AbortedTxn]) -> None:
        """Replace all entries in memory and in the file."""
        if not entries and not self._on_disk_bytes:
            self._aborted = []
            return
        file = self._file or self._fs.open(self.path, create=True)
        file.truncate(0)
        if entries:
            file.append(b"".join([_ENTRY.pack(_VERSION, *entry) for entry in entries]))
        self._file = file
        self._on_disk_bytes = file.size
        self._unsynced = True
        self._aborted = list(entries)

    def keep_below(self, offset: int) -> None:
        """Drop the entries whose marker is at or above offset."""
        aborted = self.aborted
        if aborted and aborted[-1].last_offset >= offset:
            self.reset([entry for entry in aborted if entry.last_offset < offset])

    def unsynced_file(self) -> File | None:
        """The file when it has entries that were never handed to a sync; asked once."""
        if not self._unsynced:
            return None
        self._unsynced = False
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def hold(self) -> None:
        """Read the file now if it is not: later its name may belong to another."""
        if self._aborted is None:
            self._aborted = self._load()

    def renamed(self, path: str) -> None:
        """Follow a rename of the file."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    def _load(self) -> list[AbortedTxn]:
        data = self._fs.read(self.path)
        if len(data) % _ENTRY.size:
            raise CorruptIndex(f"{self.path}: {len(data)} bytes are no multiple of {_ENTRY.size}")
        entries: list[AbortedTxn] = []
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTxn(*fields)
            if version != _VERSION or not 0 <= entry.first_offset <= entry.last_offset:
                raise CorruptIndex(f"{self.path}: impossible entry {entry}")
            if entries and entry.last_offset <= entries[-1].last_offset:
                raise CorruptIndex(f"{self.path}: entries do not ascend")
            entries.append(entry)
        return entries

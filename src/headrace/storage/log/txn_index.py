"""`.txnindex`: the aborted transactions of a segment, for read_committed consumers.

An entry is a version (int16) and the producer id, first offset, last offset (of the abort marker)
and the last stable offset when it was aborted (int64 each), as Apache Kafka writes it. Entries
ascend by last offset. The file exists only when something was aborted.

Kafka's format has no checksum, and a wrong first offset would let aborted records be seen. So a
`.txncrc` file of our own beside it holds the number of entries and their CRC-32C; every checkpoint
saves it before the recovery point moves. Entries behind that number are above the recovery point
and found again in the log.
"""

from __future__ import annotations

import os
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from headrace.storage import names
from headrace.storage.files import File, FileSystem
from headrace.storage.log.sparse_index import CorruptIndex

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_CHECKSUM = Struct(">iII")  # number of entries, their CRC, the CRC of these two


class AbortedTxn(NamedTuple):
    """A transaction whose records a read_committed consumer must skip."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The aborted transactions whose marker is in one segment; read on first use."""

    __slots__ = (
        "_aborted",
        "_checksum_file",
        "_file",
        "_fs",
        "_on_disk_bytes",
        "_pending",
        "_unsynced",
        "is_verified",
        "path",
    )

    def __init__(self, fs: FileSystem, path: str, on_disk_bytes: int = 0) -> None:
        self.path = path
        self._fs = fs
        self._file: File | None = None
        self._checksum_file: File | None = None
        self._on_disk_bytes = on_disk_bytes
        self._pending: list[AbortedTxn] = []  # in memory only
        self._unsynced = False
        self._aborted: list[AbortedTxn] | None = None if on_disk_bytes else []
        # Verified by a checksum or, if new, by this process; else it is compared with the log.
        self.is_verified = not on_disk_bytes

    @property
    def aborted(self) -> list[AbortedTxn]:
        """All entries; raises CorruptIndex if the file cannot be right."""
        if self._aborted is None:
            self._aborted = [*self._load(), *self._pending]
        return self._aborted

    @property
    def is_empty(self) -> bool:
        """Whether nothing was aborted, known without reading the file."""
        return not self._aborted if self._aborted is not None else not self._on_disk_bytes

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry in memory, unless it is known; `write` writes it to the file.

        Its marker is written by now, so trouble with the disk must not keep it from readers. A
        damaged file is left alone: it is made again from the log, and then has this one too.
        """
        try:
            aborted = self.aborted
        except CorruptIndex:
            return
        except OSError:
            aborted = self._pending.copy()
        if not aborted or aborted[-1].last_offset < entry.last_offset:
            aborted.append(entry)
            self._pending.append(entry)

    def write(self) -> None:
        """Write entries that are only in memory to the file; durable after the next checkpoint."""
        if not self._pending:
            return
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        if self._file.size != self._on_disk_bytes:
            self._file.truncate(self._on_disk_bytes)
        self._file.append(_encode(self._pending))
        self._on_disk_bytes = self._file.size
        self._unsynced = True
        self._pending = []

    def reset(self, entries: list[AbortedTxn], is_verified: bool = True) -> None:
        """Replace all entries in memory and in the file."""
        if entries or self._on_disk_bytes:
            file = self._file or self._fs.open(self.path, create=True)
            file.truncate(0)
            if entries:
                file.append(_encode(entries))
            self._file = file
            self._on_disk_bytes = file.size
            self._unsynced = True
            if is_verified:
                self._write_checksum(entries)
        self._aborted = list(entries)
        self._pending = []
        self.is_verified = is_verified

    def keep_below(self, offset: int) -> None:
        """Drop the entries whose marker is at or above offset."""
        try:
            aborted = self.aborted
        except CorruptIndex:
            return
        if aborted and aborted[-1].last_offset >= offset:
            kept = [entry for entry in aborted if entry.last_offset < offset]
            # The remaining entries are no more reliable than before: a crash may have written them.
            self.reset(kept, is_verified=self.is_verified or not kept)

    @property
    def checksum_path(self) -> str:
        """The `.txncrc` file beside the index, with the suffix that both have."""
        return self.path.replace(names.TXN_INDEX, names.TXN_CHECKSUM)

    def unsynced_files(self) -> list[File]:
        """The files to sync if entries are new, with the checksum written; returned once."""
        self.write()
        if not self._unsynced or self._file is None:
            return []
        self._unsynced = False
        entries = self.aborted  # reading them may find a checksum that verifies them
        # Not for entries that were never compared with the log: a crash may have left them.
        return [self._file, self._write_checksum(entries)] if self.is_verified else [self._file]

    def close(self) -> None:
        for file in (self._file, self._checksum_file):
            if file is not None:
                file.close()
        self._file = self._checksum_file = None

    def renamed(self, path: str) -> None:
        """Follow a rename of the file."""
        self.path = path
        if self._file is not None:
            self._file.path = path
        if self._checksum_file is not None:
            self._checksum_file.path = self.checksum_path

    def hold(self) -> None:
        """Read the file now if it was not read: another file may get its name."""
        try:
            _ = self.aborted
        except CorruptIndex:
            return

    def _load(self) -> list[AbortedTxn]:
        data = self._fs.read(self.path)
        entries = _decode(data, os.path.basename(self.path))
        vouched = self._read_checksum()
        if vouched is not None:
            count, crc = vouched
            data = data[: count * _ENTRY.size]
            if len(entries) < count or crc32c(data) != crc:
                raise CorruptIndex(f"{os.path.basename(self.path)}: checksum differs")
            entries = entries[:count]
            self._on_disk_bytes = len(data)
            self.is_verified = True
        return entries

    def _read_checksum(self) -> tuple[int, int] | None:
        """The number of entries and their CRC, or None without a sound checksum file."""
        path = self.checksum_path
        if not self._fs.exists(path):
            return None
        data = self._fs.read(path)
        try:
            count, crc, own = _CHECKSUM.unpack(data)
        except StructError:
            return None
        return (count, crc) if crc32c(data[:8]) == own else None

    def _write_checksum(self, entries: list[AbortedTxn]) -> File:
        data = _CHECKSUM.pack(len(entries), crc32c(_encode(entries)), 0)[:8]
        file = self._checksum_file or self._fs.open(self.checksum_path, create=True)
        self._checksum_file = file
        file.truncate(0)
        file.append(data + crc32c(data).to_bytes(4, "big"))
        return file


def _encode(entries: list[AbortedTxn]) -> bytes:
    return b"".join([_ENTRY.pack(_VERSION, *entry) for entry in entries])


def _decode(data: bytes, name: str) -> list[AbortedTxn]:
    if len(data) % _ENTRY.size:
        raise CorruptIndex(f"{name}: {len(data)} bytes are no multiple of {_ENTRY.size}")
    entries: list[AbortedTxn] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTxn(*fields)
        if version != _VERSION or not 0 <= entry.first_offset <= entry.last_offset:
            raise CorruptIndex(f"{name}: impossible entry {entry}")
        if entry.last_stable_offset > entry.last_offset + 1:
            raise CorruptIndex(f"{name}: impossible last stable offset {entry}")
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise CorruptIndex(f"{name}: entries do not ascend")
        entries.append(entry)
    return entries

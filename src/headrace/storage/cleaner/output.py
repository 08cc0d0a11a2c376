"""Writes a `*.cleaned` segment: log, indexes and aborted transactions."""

from __future__ import annotations

import os

from headrace.protocol.batch import read_header
from headrace.protocol.primitives import Buffer
from headrace.storage import names
from headrace.storage.files import FileSystem
from headrace.storage.log.segment import Segment
from headrace.storage.log.sparse_index import OffsetIndex, TimeIndex
from headrace.storage.log.txn_index import AbortedTxn, TxnIndex

WRITE_BUFFER_BYTES = 1 << 20


class CleanedSegment:
    """Collects batches in memory and writes them in large pieces; `finish` makes it durable."""

    def __init__(self, fs: FileSystem, folder: str, base_offset: int, index_interval_bytes: int):
        stem = os.path.join(folder, names.offset_name(base_offset, ""))
        self._file = fs.open(stem + names.LOG + names.CLEANED, create=True)
        self._segment = Segment(
            folder,
            base_offset,
            self._file,
            OffsetIndex(fs, stem + names.OFFSET_INDEX + names.CLEANED),
            TimeIndex(fs, stem + names.TIME_INDEX + names.CLEANED),
            TxnIndex(fs, stem + names.TXN_INDEX + names.CLEANED),
            created_ms=0,
        )
        self._segment.index_interval_bytes = index_interval_bytes
        self._pending = bytearray()

    def append(self, batch: Buffer) -> None:
        """Add one batch and, every now and then, its index entries."""
        header = read_header(batch)
        position = self._file.size + len(self._pending)
        self._segment.record(header.last_offset, position, len(batch), header.max_timestamp)
        self._pending += batch
        if len(self._pending) >= WRITE_BUFFER_BYTES:
            self._write()

    def add_aborted(self, transaction: AbortedTxn) -> None:
        """Add the index row of an abort marker that stays."""
        self._segment.txn_index.append(transaction)

    def finish(self) -> None:
        """Write what is left, sync every file and close them."""
        self._write()
        self._segment.seal()
        for file in (self._file, *self._segment.unsynced_index_files()):
            file.sync()
        self._segment.close()

    def _write(self) -> None:
        if self._pending:
            self._file.append(self._pending)
            self._pending = bytearray()


def remove_cleaned(fs: FileSystem, folder: str) -> None:
    """Remove the files of an unfinished cleaning."""
    for name in fs.list(folder):
        if name.endswith(names.CLEANED):
            fs.remove(os.path.join(folder, name))

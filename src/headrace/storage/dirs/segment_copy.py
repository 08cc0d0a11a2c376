"""The copy of one segment in another folder, made in steps while the segment may still grow."""

from __future__ import annotations

import os

from headrace.storage import names
from headrace.storage.files import File, FileSystem
from headrace.storage.log.segment import Segment
from headrace.storage.log.sparse_index import CorruptIndex

TURN_BYTES = 4 << 20
"""How much is copied and synced in one step: some milliseconds of a thread."""
_CHUNK_BYTES = 1 << 20
# Indexes that a scan can rebuild.
_SCANNED = (names.OFFSET_INDEX, names.TIME_INDEX)


class SourceChanged(OSError):
    """The source has changed in a way that its copy cannot follow."""


class SegmentCopy:
    """A copy of a segment in progress; used by one thread at a time."""

    def __init__(self, fs: FileSystem, original: Segment, folder: str) -> None:
        self.original = original
        #: The copy once it is complete.
        self.segment: Segment | None = None
        self._fs = fs
        self._folder = folder
        self._source = original.folder
        # The present names: they get a suffix when the segment leaves its log.
        self._names = [os.path.basename(path) for path in original.files()]
        self._file: File | None = None
        self._was_missing = False

    @property
    def size(self) -> int:
        return self._file.size if self._file is not None else 0

    def open(self) -> File:
        """The log file of the copy, created on first use. Raises OSError."""
        if self._file is None:
            path = os.path.join(self._folder, self._names[0])
            self._file = self._fs.open(path, create=True)
        return self._file

    def copy_some(self) -> None:
        """Copy and sync one step. Raises OSError."""
        file = self.open()
        append_upto(file, self.original.file, min(self.original.size, file.size + TURN_BYTES))
        file.sync()

    def copy_sealed(self) -> None:
        """Copy and sync one step of a sealed segment; its indexes follow at the end."""
        original = self.original
        try:
            self.copy_some()
            file = self.open()
            if file.size == original.size:
                for path in self._copy_indexes():
                    self._fs.sync_path(path)
                file.trim()
                file.close()
                segment = self._open()
                if original.txn_index.is_verified and not original.txn_index.is_empty:
                    segment.txn_index.reset(
                        original.txn_index.aborted
                    )  # no checksum file verifies it yet
                    for index in segment.txn_index.unsynced_files():
                        index.sync()
                    segment.txn_index.close()
                self.segment = segment
        except FileNotFoundError:
            # Retention or compaction has removed it, which shows before the next step.
            if self._was_missing:
                raise
            self._was_missing = True

    def finish_active(self) -> Segment:
        """Copy the rest of the active segment; the next checkpoint syncs its indexes."""
        original, file = self.original, self.open()
        append_upto(file, original.file, original.size)
        if original.size:
            original.seal()
            self._copy_indexes()
        segment = self._open()
        segment.file.close()
        segment.file = file  # which knows what is not synced
        if original.size:
            segment.seal()  # lists the indexes as written and not synced
            segment.txn_index.reset(original.txn_index.aborted)
        self.segment = segment
        return segment

    def _copy_indexes(self) -> list[str]:
        """Copy the index files as they are on disk; returns the paths of the copies."""
        copies = []
        for name in self._names[1:]:
            if self._fs.exists(path := os.path.join(self._source, name)):
                copies.append(os.path.join(self._folder, name))
                self._fs.write(copies[-1], self._fs.read(path))
        return copies

    def _open(self) -> Segment:
        sizes = {}
        for name in self._names:
            if self._fs.exists(path := os.path.join(self._folder, name)):
                sizes[name] = self._fs.size(path)
        base_offset, created_ms = self.original.base_offset, self.original.created_ms
        try:
            segment = Segment.open(self._fs, self._folder, base_offset, sizes, created_ms)
        except CorruptIndex:
            # As in recovery: reads scan without an index, and the next start rebuilds it.
            left = {name: sizes[name] for name in sizes if not name.endswith(_SCANNED)}
            segment = Segment.open(self._fs, self._folder, base_offset, left, created_ms)
            segment.index_damaged = True
        segment.copy_state_of(self.original)
        return segment

    def close(self) -> None:
        """Close a copy that is no longer wanted; it is removed with its folder."""
        if self._file is not None and self.segment is None:
            self._file.close()

    def remove(self) -> None:
        """Remove the copied files. Raises OSError."""
        if self._file is not None:
            self._file.close()
        for name in self._names:
            if self._fs.exists(path := os.path.join(self._folder, name)):
                self._fs.remove(path)


def append_upto(target: File, source: File, end: int) -> None:
    """Continue the copy of a file up to a position. Raises OSError."""
    while target.size < end:
        data = source.pread(min(end - target.size, _CHUNK_BYTES), target.size)
        if not data:
            raise SourceChanged(f"{source.path} has become shorter")
        target.append(data)

"""The leader epoch cache: at which offset each leader epoch began (KIP-101).

Kept in memory and saved with each checkpoint, before the recovery point moves. What a crash loses
is above the recovery point, where recovery reads it again from the batches.
"""

from __future__ import annotations

import os
from bisect import bisect_right

from headrace.storage import names
from headrace.storage.dirs.checkpoints import format_epochs, parse_epochs
from headrace.storage.files import FileSystem

NO_EPOCH = -1
OFFSET_MAX = (1 << 63) - 1


class EpochCache:
    """Epochs with their start offsets, both ascending."""

    __slots__ = ("changed", "epochs", "latest", "starts")

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        self.changed = False
        self._set(rows)

    @classmethod
    def load(cls, fs: FileSystem, folder: str) -> EpochCache:
        """The cache of a folder; raises CorruptCheckpoint."""
        path = os.path.join(folder, names.EPOCHS)
        return cls(parse_epochs(fs.read(path)) if fs.exists(path) else [])

    def save(self, fs: FileSystem, folder: str) -> None:
        """Write the cache to its folder; durable when this returns."""
        fs.write_atomic(os.path.join(folder, names.EPOCHS), format_epochs(self.rows()))

    def rows(self) -> list[tuple[int, int]]:
        return list(zip(self.epochs, self.starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Remember that epoch begins at start_offset; a known epoch stays as it is."""
        if epoch <= self.latest:
            return
        # An epoch without any record is replaced by the new one at the same offset.
        kept = [row for row in self.rows() if row[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)])

    def epoch_for(self, offset: int) -> int:
        """The leader epoch that wrote offset, or -1."""
        at = bisect_right(self.starts, offset) - 1
        return self.epochs[at] if at >= 0 else NO_EPOCH

    def span_at(self, offset: int) -> tuple[int, int]:
        """The leader epoch that wrote offset, or -1, and the first offset of the next epoch."""
        at = bisect_right(self.starts, offset)
        upto = self.starts[at] if at < len(self.starts) else OFFSET_MAX
        return (self.epochs[at - 1] if at else NO_EPOCH), upto

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The greatest known epoch at or below epoch, and where it ended; (-1, -1) if unknown."""
        if epoch == NO_EPOCH or not self.epochs:
            return NO_EPOCH, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch > self.latest:
            return NO_EPOCH, -1
        at = bisect_right(self.epochs, epoch) - 1
        if at < 0:  # older than all known ones: it ended where the oldest begins
            return epoch, self.starts[0]
        return self.epochs[at], self.starts[at + 1]

    def truncate_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or above end_offset."""
        if self.starts and self.starts[-1] >= end_offset:
            self._replace([row for row in self.rows() if row[1] < end_offset])

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that ended at or below start_offset."""
        if self.starts and self.starts[0] < start_offset:
            at = bisect_right(self.starts, start_offset) - 1
            rows = self.rows()[at:]
            self._replace([(rows[0][0], max(rows[0][1], start_offset)), *rows[1:]])

    def clear(self) -> None:
        if self.epochs:
            self._replace([])

    def _replace(self, rows: list[tuple[int, int]]) -> None:
        self._set(rows)
        self.changed = True

    def _set(self, rows: list[tuple[int, int]]) -> None:
        self.epochs = [epoch for epoch, _ in rows]
        self.starts = [start for _, start in rows]
        self.latest = rows[-1][0] if rows else NO_EPOCH

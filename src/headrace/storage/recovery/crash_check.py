"""Checks a log after a crash, batch by batch: cuts torn ends, and keeps damage of other kinds.

`recovery` explains what a crash can destroy, and why other damage stays.
"""

from __future__ import annotations

import logging
import os

from headrace.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.storage import names
from headrace.storage.files import File, FileSystem
from headrace.storage.log.epochs import EpochCache
from headrace.storage.log.log import RELATIVE_OFFSET_MAX
from headrace.storage.log.scan import (
    SCAN_CHUNK_BYTES,
    BadBatch,
    behind_damage,
    iter_checked,
    next_batch,
)
from headrace.storage.log.segment import Segment
from headrace.storage.log.sparse_index import CorruptIndex

_log = logging.getLogger(__name__)
_HINT = "run `headrace log verify` for details"


class CrashCheck:
    """One check of one log; `segments` are those that are left when it has run."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        segments: list[Segment],
        epochs: EpochCache,
        *,
        check_from: int,
        synced_upto: int,
        gaps_upto: int,
        compacted_upto: int,
        begins_at: int | None,
        same_boot: bool,
        now_ms: int,
    ) -> None:
        self.segments = segments
        self._fs = fs
        self._folder = folder
        self._epochs = epochs
        # The recovery point, or 0 if nothing but the batches is trusted.
        self._check_from = check_from
        self._synced_upto = synced_upto
        # Compaction may have removed batches below the first, whole segments below the second.
        self._gaps_upto = gaps_upto
        self._compacted_upto = compacted_upto
        self._begins_at = begins_at  # if nothing of the log can have been deleted yet
        self._same_boot = same_boot
        self._now_ms = now_ms
        self._new_epoch: tuple[int, int] | None = None  # of the last batch, with its offset

    def run(self) -> int:
        """Check all batches from the recovery point on, cut a torn end; returns the end offset."""
        self._epochs.truncate_end(self._check_from)
        if self._has_lost_its_beginning():
            return self.segments[0].base_offset
        end_offset = self.segments[0].base_offset
        for index, segment in enumerate(self.segments):
            following = self.segments[index + 1 :]
            if following and following[0].base_offset <= self._check_from:
                end_offset = following[0].base_offset
                continue
            if segment.base_offset > max(end_offset, self._check_from, self._compacted_upto):
                reason = f"nothing is between {end_offset} and {segment.base_offset}"
                if self._may_be_torn(end_offset):
                    self._drop(self.segments[index:], reason)
                    break
                _log.error("%s: %s, but data was there; %s", self._folder, reason, _HINT)
            next_base = following[0].base_offset if following else None
            end_offset, goes_on = self._recover_segment(segment, next_base)
            if not goes_on:
                self._drop(following, f"segment {segment.base_offset} was cut")
                break
        if end_offset < self._synced_upto:
            _log.error(
                "%s: batches from offset %d on are damaged or missing, though they were synced "
                "up to %d; the log continues from there; %s",
                self._folder,
                end_offset,
                self._synced_upto,
                _HINT,
            )
            end_offset = self._synced_upto
            self._add_segment(end_offset)
        elif self.segments[-1].damage:
            self._add_segment(end_offset)
        if self._new_epoch is not None:
            self._epochs.assign(*self._new_epoch)
        self._epochs.truncate_end(end_offset)
        return end_offset

    def _has_lost_its_beginning(self) -> bool:
        """Start again, empty, if the first segments are gone, which only a crash can cause."""
        offset, base_offset = self._begins_at, self.segments[0].base_offset
        if offset is None or base_offset <= offset or not self._may_be_torn(offset):
            return False
        self._drop(self.segments, f"nothing is between {offset} and {base_offset}")
        self._epochs.truncate_end(offset)
        self._add_segment(offset)
        return True

    def _recover_segment(self, segment: Segment, next_base: int | None) -> tuple[int, bool]:
        """Check a segment's batches and rebuild its indexes; its end, and if the log continues.

        It ends at a torn end, which is cut. `next_base` is the next segment's base offset.
        """
        position, expected = self._trusted_until(segment)
        goes_on = True
        while position < segment.size:
            try:
                for at, header, _ in iter_checked(segment.file, position, segment.size):
                    self._check_place(segment, at, header, expected)
                    segment.record(header.last_offset, at, header.size, header.max_timestamp)
                    self._learn_epoch(header.leader_epoch, header.base_offset)
                    position, expected = at + header.size, header.next_offset
            except BadBatch as error:
                behind = behind_damage(segment.file, position, segment.size, expected)
                is_complete = next_base == expected
                is_end = is_complete or (behind is None and next_base is None)
                if self._may_be_torn(expected) or (expected >= self._synced_upto and is_end):
                    self._cut(segment, position, expected, is_end, error)
                    goes_on = is_complete
                    break
                goes_on = not is_end
                _log.error(
                    "%s: offset %d is damaged, and not by a torn end: %s; it stays, reads of it "
                    "fail with CORRUPT_MESSAGE; %s",
                    segment.file.path,
                    expected,
                    error,
                    _HINT,
                )
                segment.skip_damage(position, segment.size if behind is None else behind)
                if behind is None:
                    break
                position = behind
                expected = read_header(segment.file.pread(HEADER_BYTES, behind)).base_offset
        segment.seal()
        segment.file.sync()
        return expected, goes_on

    def _learn_epoch(self, epoch: int, offset: int) -> None:
        """Accept a new epoch once the next batch has it too: no CRC covers an epoch."""
        if self._new_epoch is not None:
            if self._new_epoch[0] <= epoch:
                self._epochs.assign(*self._new_epoch)
            else:
                offset = self._new_epoch[1]  # that batch's epoch was wrong: it has this one's
        self._new_epoch = (epoch, offset) if epoch > self._epochs.latest else None

    def _may_be_torn(self, offset: int) -> bool:
        """Whether a crash can have destroyed what was written from an offset on.

        It cannot if it was synced, or if the machine was not restarted: the page cache outlives a
        process.
        """
        return offset >= self._synced_upto and not self._same_boot

    def _cut(
        self, segment: Segment, position: int, expected: int, is_end: bool, error: BadBatch
    ) -> None:
        """Cut a segment before bytes that are not a batch; keep a copy if no crash explains it."""
        size = segment.size - position
        if is_end and (self._may_be_torn(expected) or _is_unfinished(segment, position)):
            message = "%s: %d bytes after offset %d are cut: %s"
            _log.warning(message, segment.file.path, size, expected, error)
        else:
            copy = copy_tail(self._fs, self._folder, segment.file, position, expected)
            _log.error(
                "%s: %d bytes after offset %d are cut, more than a torn end: %s; a power loss "
                "can do that to records that were not synced, a failing disk to any; they are kept "
                "in %s, `headrace log dump --deep` shows them",
                segment.file.path,
                size,
                expected,
                error,
                copy,
            )
        segment.file.truncate(position)

    def _trusted_until(self, segment: Segment) -> tuple[int, int]:
        """Where in a segment the check begins; its indexes are cut to what is before."""
        try:
            if segment.base_offset < self._check_from and not segment.index_damaged:
                position, offset = self._recovery_position(segment)
                segment.keep_indexes(position, offset)
                return position, offset
        except (BadBatch, CorruptIndex) as error:
            _log.warning("%s is checked from its start: %s", segment.file.path, error)
        segment.index_damaged = False
        segment.reset_indexes()
        segment.txn_index.keep_below(self._check_from)
        return 0, segment.base_offset

    def _recovery_position(self, segment: Segment) -> tuple[int, int]:
        """Where the first batch at or after the recovery point starts; raises BadBatch."""
        try:
            found = segment.locate(self._check_from)
        except BadBatch as error:
            # A crash leaves only a torn append right after the recovery point: what is before it
            # need not be checked again.
            if segment.index_damaged or segment.relearn(error.position) != self._check_from:
                raise
            return error.position, self._check_from
        if segment.index_damaged:
            raise CorruptIndex("entries do not point to their batches")
        if found is not None:
            position, header = found
            if header.base_offset == self._check_from:
                return position, self._check_from
            raise BadBatch(position, f"no batch begins at {self._check_from}")
        end_offset = segment.relearn()
        if end_offset != self._check_from:
            raise BadBatch(segment.size, f"ends at {end_offset}, not {self._check_from}")
        return segment.size, end_offset

    def _check_place(
        self, segment: Segment, position: int, header: BatchHeader, expected: int
    ) -> None:
        """Raise BadBatch for a batch whose offsets, which no CRC covers, cannot be right."""
        base_offset = header.base_offset
        gaps_allowed = expected < self._gaps_upto
        if base_offset < expected or (base_offset > expected and not gaps_allowed):
            raise BadBatch(position, f"offset {base_offset} does not follow {expected}")
        if base_offset < self._check_from < header.next_offset:
            raise BadBatch(position, f"crosses the recovery point {self._check_from}")
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            raise BadBatch(position, f"offset {header.last_offset} is too large for the segment")

    def _drop(self, segments: list[Segment], reason: str) -> None:
        for segment in segments:
            path = segment.file.path
            if next_batch(segment.file, 0, segment.size, segment.base_offset) is None:
                _log.warning("%s is removed: %s", path, reason)
                segment.remove(self._fs)
            else:
                kept = move_segment(self._fs, segment)
                _log.error("%s is not a part of the log: %s; it is kept as %s", path, reason, kept)
        gone = {segment.base_offset for segment in segments}
        self.segments = [s for s in self.segments if s.base_offset not in gone]

    def _add_segment(self, offset: int) -> None:
        segment = Segment.create(self._fs, self._folder, offset, self._now_ms)
        self.segments = [*self.segments, segment]


def _is_unfinished(segment: Segment, position: int) -> bool:
    """Whether the bytes are a batch without its end, as a killed append leaves it."""
    room = segment.size - position
    if room < HEADER_BYTES:
        return True
    header = read_header(segment.file.pread(HEADER_BYTES, position))
    return header.magic == MAGIC and header.size > room


def copy_tail(fs: FileSystem, folder: str, file: File, position: int, offset: int) -> str:
    """Copy a file from a position, where an offset was expected, to a `.corrupt` file.

    Returns the path of the copy, which is durable. Raises OSError.
    """
    path = _free_path(fs, os.path.join(folder, names.offset_name(offset, names.LOG)))
    copy = fs.open(path, create=True)
    try:
        for at in range(position, file.size, SCAN_CHUNK_BYTES):
            copy.append(file.pread(min(SCAN_CHUNK_BYTES, file.size - at), at))
        copy.sync()
    finally:
        copy.close()
    fs.sync_dir(folder)
    return path


def move_segment(fs: FileSystem, segment: Segment) -> str:
    """Rename a segment's log file to `.corrupt` and remove its indexes; returns the new path.

    Raises OSError.
    """
    path = _free_path(fs, segment.file.path)
    fs.rename(segment.file.path, path)
    segment.remove(fs)
    return path


def _free_path(fs: FileSystem, path: str) -> str:
    path += names.CORRUPT
    while fs.exists(path):  # of an earlier recovery, which must not be lost
        path += names.CORRUPT
    return path

"""Opening a log: quickly after a clean stop, with care after a crash.

Recovery relies on the order in which things become durable. The power-loss tests check it:

1. A batch is acknowledged (acks=all) and shown to readers only when the file that holds it, every
   older file written since the last flush, and the folder entry of each new file are synced
   (`Flush`). So data at or above `synced_offset` may vanish in a crash, in any subset of its pages
   and files; data below never does.
2. The recovery point moves to an offset only after the data below it, the index entries of those
   data, the epochs, and a producer snapshot at exactly that offset are synced (`Checkpoint`); the
   checkpoint file is then replaced atomically, and only then are older snapshots removed. So
   recovery trusts indexes and snapshots up to the recovery point, rebuilds everything above it, and
   never scans below it: damage there is found when it is read.
3. Appends leave no gaps between segments: a segment is named by the offset at which the one before
   it ended, and the first by 0 until retention deletes it, which needs a recovery point. Only
   compaction leaves gaps, and it first stores durably how far it goes (`swap`). So a gap above that
   and above the recovery point is a lost tail: the log ends before it.
4. A truncation first lowers the recovery point durably, then cuts files, removes snapshots and
   syncs the folder before anything is appended again at those offsets.
5. Retention deletes only segments below the recovery point, so that a durable snapshot remembers
   the producers of the deleted batches. A segment leaves the log by a rename to `.deleted`; a
   compacted one enters it by `.swap` (see `swap`), each step synced before the next.
6. The clean-shutdown marker is written after a checkpoint of every log in the folder, and removed
   durably before the first append after it was read.

After a crash a log therefore ends with the last batch, from the recovery point on, that is
complete, has the right CRC and follows the one before it. The tail after it is cut, and the rest is
synced before anyone may read it, since a killed process may have left it only in the page cache.

Damage that no crash explains comes from the disk, and is never cut: data below the recovery point
was synced, and as long as the machine is not restarted (`FileSystem.boot_id`), everything written
is there. Reads report it, data after it is served, and appends continue in a new segment. After a
power loss, complete batches after a bad one can have either cause: pages that were not synced may
vanish in any order. They are cut, since records that were not synced were not acknowledged, but
kept under a `.corrupt` name, since they may have been synced. Decision 7 explains this.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace.protocol.batch import BatchHeader
from headrace.storage import names
from headrace.storage.dirs.checkpoints import CorruptCheckpoint, parse_partition_metadata
from headrace.storage.files import FileSystem
from headrace.storage.log import snapshots
from headrace.storage.log.config import LogConfig
from headrace.storage.log.epochs import NO_EPOCH, EpochCache
from headrace.storage.log.log import Log
from headrace.storage.log.scan import BadBatch
from headrace.storage.log.segment import Segment
from headrace.storage.log.sparse_index import CorruptIndex
from headrace.storage.log.swap import COMPACTED_UPTO, compacted_upto, finish_swaps
from headrace.storage.recovery.crash_check import CrashCheck
from headrace.storage.recovery.replay import rebuild_producers

_log = logging.getLogger(__name__)
_NO_END = 1 << 63


@dataclass(slots=True, kw_only=True)
class Opening:
    """What is known about a log before its files are read."""

    topic: str
    partition: int
    config: LogConfig
    now_ms: int
    clean: bool = False
    recovery_point: int = 0
    #: Whether a checkpoint has, or may have, the log: else no segment was deleted yet.
    is_saved: bool = True
    #: Whether the machine was not restarted since the last write: everything written is there.
    same_boot: bool = False
    start_offset: int = 0
    on_truncation: Callable[[Log], None] | None = None
    rng: random.Random | None = None


def open_log(fs: FileSystem, folder: str, opening: Opening) -> Log:
    """Open the log in a folder, recovering it unless it was cleanly closed; raises OSError."""
    return _Opener(fs, folder, opening).open()


class _Opener:
    """One opening of one folder."""

    def __init__(self, fs: FileSystem, folder: str, opening: Opening) -> None:
        self.fs = fs
        self.folder = folder
        self.opening = opening
        self.recovery_point = opening.recovery_point
        self.present: set[str] = set()
        self.compacted_upto = 0
        self.epochs = EpochCache([])
        self.segments: list[Segment] = []
        self.changed = False

    def open(self) -> Log:
        sizes = self._tidy()
        if COMPACTED_UPTO in self.present:
            self.compacted_upto = compacted_upto(self.fs, self.folder)
        if names.EPOCHS in self.present:
            self._load_epochs()
        bases = sorted(
            base for name in sizes if (base := names.parse_offset(name, names.LOG)) is not None
        )
        self.segments = [self._open_segment(base, sizes) for base in bases]
        opening = self.opening
        if not self.segments:
            self._add_segment(opening.start_offset)
        elif not self._epochs_agree():
            self._distrust_epochs("they do not agree with the log")
        end_offset = self._clean_end() if opening.clean else None
        recovered = end_offset is None
        if end_offset is None:
            end_offset = self._recover()
        start_offset = max(opening.start_offset, self.segments[0].base_offset)
        if end_offset < start_offset:
            _log.warning(
                "%s ends at %d, before its start %d: it starts again, empty",
                self.folder,
                end_offset,
                start_offset,
            )
            for segment in self.segments:
                segment.remove(self.fs)
            self.segments = []
            self._add_segment(start_offset)
            end_offset = start_offset
        if recovered:
            # Only the snapshot of a checkpoint is certainly complete, with its batches.
            self._remove_snapshots_above(max(self.recovery_point, start_offset))
        # Recovery has already read the epochs, with more care.
        epochs = EpochCache([]) if recovered else self.epochs
        producers = rebuild_producers(
            self.fs, self.folder, self.present, self.segments, end_offset, epochs
        )
        if self.changed:
            for segment in self.segments:
                for file in segment.unsynced_index_files():
                    file.sync()
            self.fs.sync_dir(self.folder)
        log = Log(
            self.fs,
            self.folder,
            opening.topic,
            opening.partition,
            opening.config,
            self.segments,
            start_offset=start_offset,
            end_offset=end_offset,
            epochs=self.epochs,
            producers=producers,
            topic_id=self._topic_id(),
            on_truncation=opening.on_truncation,
            rng=opening.rng,
        )
        log.recovery_point = min(end_offset, self.recovery_point) if recovered else end_offset
        return log

    def _tidy(self) -> dict[str, int]:
        """Finish or undo what a crash interrupted; returns names and sizes of the log's files."""
        fs, folder = self.fs, self.folder
        found = set(fs.list(folder))
        if finish_swaps(fs, folder, found):
            self.changed = True
            found = set(fs.list(folder))
        for name in list(found):
            if name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY)):
                fs.remove(os.path.join(folder, name))
                found.discard(name)
        sizes = {}
        for name in found:
            if name.endswith(names.SEGMENT_SUFFIXES):
                stem = name.partition(".")[0]
                if stem + names.LOG in found:
                    sizes[name] = fs.size(os.path.join(folder, name))
                else:
                    fs.remove(os.path.join(folder, name))
        self.present = found
        return sizes

    def _load_epochs(self) -> None:
        try:
            self.epochs = EpochCache.load(self.fs, self.folder)
        except CorruptCheckpoint as error:
            self._distrust_epochs(str(error))

    def _distrust_epochs(self, reason: str) -> None:
        """Have the whole log checked, and the epochs read from it."""
        _log.error("%s: epochs are read from the log again: %s", self.folder, reason)
        self.epochs = EpochCache([])
        self.opening.clean = False
        self.recovery_point = 0

    def _open_segment(self, base_offset: int, sizes: dict[str, int]) -> Segment:
        try:
            segment = Segment.open(self.fs, self.folder, base_offset, sizes, self.opening.now_ms)
            stem = names.offset_name(base_offset, "")
            missing = segment.size > self.opening.config.index_interval_bytes and (
                stem + names.OFFSET_INDEX not in sizes
            )
            segment.index_damaged = missing
            return segment
        except CorruptIndex as error:
            _log.warning("%s: an index is rebuilt: %s", self.folder, error)
            # A scan can rebuild only these two; the transaction index stays.
            scanned = (names.OFFSET_INDEX, names.TIME_INDEX)
            left = {name: size for name, size in sizes.items() if not name.endswith(scanned)}
            segment = Segment.open(self.fs, self.folder, base_offset, left, self.opening.now_ms)
            segment.index_damaged = True
            return segment

    def _add_segment(self, offset: int) -> None:
        segment = Segment.create(self.fs, self.folder, offset, self.opening.now_ms)
        self.segments = [*self.segments, segment]
        self.changed = True

    def _topic_id(self) -> bytes | None:
        if names.PARTITION_METADATA not in self.present:
            return None
        path = os.path.join(self.folder, names.PARTITION_METADATA)
        try:
            return parse_partition_metadata(self.fs.read(path))
        except CorruptCheckpoint as error:
            _log.error("%s: %s", path, error)
            return None

    def _clean_end(self) -> int | None:
        """The end of a cleanly closed log, found without a scan; None if it cannot be right."""
        last = self.segments[-1]
        try:
            if last.index_damaged:
                raise CorruptIndex("no usable index")
            end_offset = last.relearn(sealed=True)
        except (BadBatch, CorruptIndex) as error:
            _log.warning("%s was closed cleanly but is damaged: %s", self.folder, error)
            return None
        if self.recovery_point and end_offset != self.recovery_point:
            _log.error(
                "%s ends at %d but was closed at %d",
                self.folder,
                end_offset,
                self.recovery_point,
            )
            return None
        # The entries are in memory: a thousand logs need not keep two thousand descriptors open.
        last.offsets.close()
        last.times.close()
        return end_offset

    def _epochs_agree(self) -> bool:
        """Whether the batches around the last epoch's start agree; the file has no CRC."""
        rows = self.epochs.rows()
        first_base = self.segments[0].base_offset
        if not rows:
            return True
        if rows[0][1] > max(first_base, self.opening.start_offset):
            return not any(segment.size for segment in self.segments)
        epoch, start = rows[-1]
        try:
            first = self._batch_at(start)
            before = self._batch_at(start - 1) if len(rows) > 1 and start > first_base else None
        except BadBatch:
            return True  # the log is damaged there
        return (first is None or first.leader_epoch in (epoch, NO_EPOCH)) and (
            before is None or before.leader_epoch < epoch
        )

    def _batch_at(self, offset: int) -> BatchHeader | None:
        for segment in reversed(self.segments):
            if segment.base_offset <= offset:
                found = segment.locate(offset)
                return found[1] if found else None
        return None

    def _recover(self) -> int:
        """Check all batches from the recovery point on; returns the end offset."""
        self.changed = True
        check = CrashCheck(
            self.fs,
            self.folder,
            self.segments,
            self.epochs,
            check_from=self.recovery_point,
            synced_upto=self.opening.recovery_point,
            gaps_upto=_NO_END if self.opening.config.is_compacted else self.compacted_upto,
            compacted_upto=self.compacted_upto,
            begins_at=self._begins_at(),
            same_boot=self.opening.same_boot,
            now_ms=self.opening.now_ms,
        )
        end_offset = check.run()
        self.segments = check.segments
        return end_offset

    def _begins_at(self) -> int | None:
        """Where the log begins if none of its segments can have been deleted; else None.

        No checkpoint file has a folder that a person has put here. But a log that was ever saved
        has a file of its epochs, and only such a log loses segments.
        """
        if self.opening.is_saved or names.EPOCHS in self.present:
            return None
        return self.opening.start_offset

    def _remove_snapshots_above(self, limit: int) -> None:
        above = {offset for offset in snapshots.offsets(self.present) if offset > limit}
        snapshots.remove(self.fs, self.folder, self.present, above)
        self.present -= {names.offset_name(offset, names.SNAPSHOT) for offset in above}

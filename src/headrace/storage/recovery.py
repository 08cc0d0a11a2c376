"""Opening a log: quickly after a clean stop, with care after a crash.

What is durable before what. Everything below follows from these orderings, and the power-loss
tests check them:

1. A batch is acknowledged (acks=all) and shown to readers only when the file that holds it, every
   older file written since the last flush, and the folder entry of each new file are synced
   (`Flush`). So what lies at or above `synced_offset` may vanish in a crash, in any subset of its
   pages and files; what lies below never does.
2. The recovery point moves to an offset only after the data below it, the index entries of those
   data, the epochs, and a producer snapshot at exactly that offset are synced (`Checkpoint`); the
   checkpoint file is then replaced atomically. So recovery trusts indexes and snapshots up to the
   recovery point and rebuilds all above it, and never scans what lies below: damage there is found
   when it is read.
3. Appends leave no gaps between segments: a segment is named by the offset at which the one
   before it ended. Only compaction does, and it keeps how far it went durably (`swap`) before it
   does. So a gap above that and above the recovery point is a lost tail: the log ends before it.
4. A truncation first lowers the recovery point durably, then cuts files, removes snapshots and
   syncs the folder before anything is appended again at those offsets.
5. Retention takes only segments below the recovery point, so that a durable snapshot remembers the
   producers of the batches that go. A segment leaves the log by a rename to `.deleted`; a compacted
   one enters it by `.swap` (see `swap`), each step synced before the next.
6. The clean-shutdown marker is written after a checkpoint of every log in the folder, and removed
   durably before the first append after it was read.

After a crash a log therefore ends with the last batch, from the recovery point on, that is whole,
has its right CRC and follows the one before it. The tail behind it is cut and what is kept is
synced before anyone may read it, since a killed process may have left it in the page cache only.

Damage that no crash explains is the disk's doing, and is never cut: what lies below the recovery
point was synced, and while the machine runs on (`FileSystem.boot_id`) all that was written is
there. It stays for reads to report, what lies behind it is served, and appends go on in a new
segment. After a power loss whole batches behind a bad one can be either: pages that were not synced
may vanish in any order. They are cut, since nobody was told of records that were not synced, but
kept under a `.corrupt` name, since nothing tells that they were not. Decision 7 says why.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.storage import names, snapshots
from headrace.storage.checkpoints import CorruptCheckpoint, parse_partition_metadata
from headrace.storage.config import LogConfig
from headrace.storage.epochs import NO_EPOCH, EpochCache
from headrace.storage.files import FileSystem
from headrace.storage.log import RELATIVE_OFFSET_MAX, Log
from headrace.storage.replay import rebuild_producers
from headrace.storage.scan import BadBatch, behind_damage, iter_checked, next_batch
from headrace.storage.segment import Segment
from headrace.storage.setting_aside import copy_tail, move_segment
from headrace.storage.sparse_index import CorruptIndex
from headrace.storage.swap import COMPACTED_UPTO, compacted_upto, finish_swaps

_log = logging.getLogger(__name__)
_HINT = "`headrace log verify` tells more"


@dataclass(slots=True, kw_only=True)
class Opening:
    """What is known about a log before its files are read."""

    topic: str
    partition: int
    config: LogConfig
    now_ms: int
    clean: bool = False
    recovery_point: int = 0
    #: The machine has run on since the log was last written to: all that was written is there.
    same_boot: bool = False
    start_offset: int = 0
    on_truncation: Callable[[Log], None] | None = None
    rng: random.Random | None = None


def _is_headless(segment: Segment, position: int) -> bool:
    """Whether only the head of a batch is missing, which is written last of a large one.

    What looks like a batch in the rest is a value in it, or else could be: see `staging`.
    """
    return not any(segment.file.pread(HEADER_BYTES, position))


def _is_unfinished(segment: Segment, position: int) -> bool:
    """Whether bytes are what a killed append leaves: no end, or no head."""
    room = segment.size - position
    if room < HEADER_BYTES or _is_headless(segment, position):
        return True
    header = read_header(segment.file.pread(HEADER_BYTES, position))
    return header.magic == MAGIC and header.size > room


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
        self.new_epoch: tuple[int, int] | None = None  # of the last batch, with its offset
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
                "%s ends at %d, before its start %d: it begins again, empty",
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
            # Only a snapshot of a checkpoint is surely whole, with the batches that go with it.
            self._remove_snapshots_above(max(self.recovery_point, start_offset))
        # Recovery has learned the epochs already, and with more care.
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
        """Finish or undo what a crash interrupted; names and sizes of the log's files."""
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
        """Have the whole log checked, and the epochs read from it on the way."""
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
            _log.warning("%s: index is built again: %s", self.folder, error)
            # Only these two can be built again by a scan; the transaction index stays.
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
        """The end of a cleanly closed log, found without a scan; None when it is not credible."""
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
        # What was read is in memory: a thousand logs need not hold two thousand more descriptors.
        last.offsets.close()
        last.times.close()
        return end_offset

    def _epochs_agree(self) -> bool:
        """Whether the batches where the last epoch begins say the same; the file has no CRC."""
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
            return True  # the log is damaged there and cannot tell
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
        """Check all batches from the recovery point on, cut what is torn; the end offset."""
        self.changed = True
        self.epochs.truncate_end(self.recovery_point)
        end_offset = self.segments[0].base_offset
        for index, segment in enumerate(self.segments):
            following = self.segments[index + 1 :]
            if following and following[0].base_offset <= self.recovery_point:
                end_offset = following[0].base_offset
                continue
            if segment.base_offset > max(end_offset, self.recovery_point, self.compacted_upto):
                reason = f"nothing lies between {end_offset} and {segment.base_offset}"
                if self._may_be_torn(end_offset):
                    self._drop(self.segments[index:], reason)
                    break
                _log.error("%s: %s, though it was there; %s", self.folder, reason, _HINT)
            next_base = following[0].base_offset if following else None
            end_offset, goes_on = self._recover_segment(segment, next_base)
            if not goes_on:
                self._drop(following, f"segment {segment.base_offset} was cut")
                break
        if end_offset < self.recovery_point:
            _log.error(
                "%s: batches from offset %d on are damaged or missing, though they were synced "
                "up to %d; the log goes on from there; %s",
                self.folder,
                end_offset,
                self.recovery_point,
                _HINT,
            )
            end_offset = self.recovery_point
            self._add_segment(end_offset)
        elif self.segments[-1].damage:
            self._add_segment(end_offset)
        if self.new_epoch is not None:
            self.epochs.assign(*self.new_epoch)
        self.epochs.truncate_end(end_offset)
        return end_offset

    def _recover_segment(self, segment: Segment, next_base: int | None) -> tuple[int, bool]:
        """Check a segment's batches and rebuild its indexes; its end, and whether the log goes on.

        It does not behind a torn end, which is cut. `next_base` is the next segment's base offset.
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
                if self._may_be_torn(expected) or (
                    expected >= self.recovery_point and (is_end or _is_headless(segment, position))
                ):
                    self._cut(segment, position, expected, is_end, error)
                    goes_on = is_complete
                    break
                goes_on = not is_end
                _log.error(
                    "%s: offset %d is damaged, and it is no torn end: %s; it stays, reads of it "
                    "fail with CORRUPT_MESSAGE; %s",
                    segment.file.path,
                    expected,
                    error,
                    _HINT,
                )
                segment.step_over(position, segment.size if behind is None else behind)
                if behind is None:
                    break
                position = behind
                expected = read_header(segment.file.pread(HEADER_BYTES, behind)).base_offset
        segment.seal()
        segment.file.sync()
        return expected, goes_on

    def _learn_epoch(self, epoch: int, offset: int) -> None:
        """Take a new epoch once the next batch has it too: no CRC covers it, and none goes back."""
        if self.new_epoch is not None:
            if self.new_epoch[0] <= epoch:
                self.epochs.assign(*self.new_epoch)
            else:
                offset = self.new_epoch[1]  # that batch lied: it has this one's epoch
        self.new_epoch = (epoch, offset) if epoch > self.epochs.latest else None

    def _may_be_torn(self, offset: int) -> bool:
        """Whether a crash can have taken what was written from an offset on.

        Not what was synced, and nothing as long as the machine has not stopped: the page cache
        outlives a process.
        """
        return offset >= self.opening.recovery_point and not self.opening.same_boot

    def _cut(
        self, segment: Segment, position: int, expected: int, is_end: bool, error: BadBatch
    ) -> None:
        """Cut a segment before bytes that are no batch; a copy stays unless a crash explains it."""
        size = segment.size - position
        if is_end and (self._may_be_torn(expected) or _is_unfinished(segment, position)):
            message = "%s: %d bytes after offset %d are cut: %s"
            _log.warning(message, segment.file.path, size, expected, error)
        else:
            copy = copy_tail(self.fs, self.folder, segment.file, position, expected)
            _log.error(
                "%s: %d bytes after offset %d are cut, more than a torn end: %s; a power loss "
                "leaves that of records that were not synced, a failing disk of any; they are kept "
                "in %s, `headrace log dump --deep` shows them",
                segment.file.path,
                size,
                expected,
                error,
                copy,
            )
        segment.file.truncate(position)

    def _trusted_until(self, segment: Segment) -> tuple[int, int]:
        """Where in a segment the check begins, with its indexes cut to what lies before."""
        try:
            if segment.base_offset < self.recovery_point and not segment.index_damaged:
                position, offset = self._recovery_position(segment)
                segment.keep_indexes(position, offset)
                return position, offset
        except (BadBatch, CorruptIndex) as error:
            _log.warning("%s is checked from its start: %s", segment.file.path, error)
        segment.index_damaged = False
        segment.reset_indexes()
        segment.aborted.keep_below(self.recovery_point)
        return 0, segment.base_offset

    def _recovery_position(self, segment: Segment) -> tuple[int, int]:
        """Where the first batch at or after the recovery point starts; raises BadBatch."""
        try:
            found = segment.locate(self.recovery_point)
        except BadBatch as error:
            # A torn append right behind the recovery point is all that a crash leaves: what lies
            # before it need not be checked again.
            if segment.index_damaged or segment.relearn(error.position) != self.recovery_point:
                raise
            return error.position, self.recovery_point
        if segment.index_damaged:
            raise CorruptIndex("entries do not lead to their batches")
        if found is not None:
            position, header = found
            if header.base_offset == self.recovery_point:
                return position, self.recovery_point
            raise BadBatch(position, f"no batch begins at {self.recovery_point}")
        end_offset = segment.relearn()
        if end_offset != self.recovery_point:
            raise BadBatch(segment.size, f"ends at {end_offset}, not {self.recovery_point}")
        return segment.size, end_offset

    def _check_place(
        self, segment: Segment, position: int, header: BatchHeader, expected: int
    ) -> None:
        """Raise BadBatch for a batch whose offsets, which no CRC covers, cannot be right."""
        base_offset = header.base_offset
        gaps_allowed = self.opening.config.is_compacted or expected < self.compacted_upto
        if base_offset < expected or (base_offset > expected and not gaps_allowed):
            raise BadBatch(position, f"offset {base_offset} does not follow {expected}")
        if base_offset < self.recovery_point < header.next_offset:
            raise BadBatch(position, f"crosses the recovery point {self.recovery_point}")
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            raise BadBatch(position, f"offset {header.last_offset} is out of the segment's reach")

    def _drop(self, segments: list[Segment], reason: str) -> None:
        for segment in segments:
            path = segment.file.path
            if next_batch(segment.file, 0, segment.size, segment.base_offset) is None:
                _log.warning("%s is removed: %s", path, reason)
                segment.remove(self.fs)
            else:
                kept = move_segment(self.fs, segment)
                _log.error("%s is no part of the log: %s; it is kept as %s", path, reason, kept)
        gone = {segment.base_offset for segment in segments}
        self.segments = [s for s in self.segments if s.base_offset not in gone]

    def _remove_snapshots_above(self, limit: int) -> None:
        above = {offset for offset in snapshots.offsets(self.present) if offset > limit}
        snapshots.remove(self.fs, self.folder, self.present, above)
        self.present -= {names.offset_name(offset, names.SNAPSHOT) for offset in above}

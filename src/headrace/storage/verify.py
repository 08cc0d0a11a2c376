"""Deep verification of a data folder: is every file what it should be, and do they agree?

Only reads. An `error` is damage: something was lost, or would be served wrongly if reading did not
check again. A `warning` is something that a start repairs by itself. An `info` is a leftover.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

from headrace.protocol.batch import BatchHeader, InvalidBatch, iter_records
from headrace.storage import names
from headrace.storage.dirs import checkpoints
from headrace.storage.dirs.checkpoints import CheckpointFolder, CorruptCheckpoint, Offsets
from headrace.storage.dump import index_entries
from headrace.storage.files import FileSystem
from headrace.storage.log import snapshots
from headrace.storage.log.epochs import NO_EPOCH, EpochCache
from headrace.storage.log.producers import Producer
from headrace.storage.log.scan import Salvaged, iter_salvaged
from headrace.storage.log.snapshots import CorruptSnapshot
from headrace.storage.log.sparse_index import CorruptIndex, OffsetIndex, SparseIndex, TimeIndex
from headrace.storage.log.txn_index import AbortedTxn, TxnIndex
from headrace.storage.os_files import OsFileSystem

T = TypeVar("T")

RELATIVE_OFFSET_MAX = (1 << 31) - 1
CHECKPOINTS = (
    checkpoints.RECOVERY_POINT,
    checkpoints.LOG_START,
    checkpoints.HIGH_WATERMARK,
    checkpoints.CLEANER,
)


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(NamedTuple):
    """One thing that is not as it should be; `position` is in bytes, where there is one."""

    severity: Severity
    file: str
    position: int | None
    problem: str


Findings = Iterator[Finding]


def verify(path: str, *, fs: FileSystem | None = None) -> Findings:
    """The problems in a data folder or in one partition's folder, as they are found."""
    files = fs or OsFileSystem(read_only=True)
    if names.parse_folder(os.path.basename(os.path.abspath(path))) and _has_segments(files, path):
        offsets, _ = _read_checkpoints(files, os.path.dirname(os.path.abspath(path)))
        yield from _Partition(files, path, offsets).findings()
        return
    offsets, damaged = _read_checkpoints(files, path)
    yield from damaged
    folders = set()
    for name in sorted(files.list(path)):
        child = os.path.join(path, name)
        if not files.is_dir(child):
            continue
        place = names.parse_folder(name)
        if place is None:
            if name.endswith(names.DELETED_FOLDER):
                yield Finding(Severity.INFO, child, None, "a deleted partition, to be removed")
            continue
        folders.add(place)
        yield from _Partition(files, child, offsets).findings()
    for name, known in offsets.items():
        for place in sorted(known.keys() - folders):
            problem = f"has {names.folder_name(*place)}, which is not here"
            yield Finding(Severity.INFO, os.path.join(path, name), None, problem)


def holds_logs(path: str) -> bool:
    """Whether a folder is a partition's, or a data folder with partitions or checkpoints."""
    files = OsFileSystem(read_only=True)
    if _has_segments(files, path):
        return True
    children = files.list(path)
    return any(names.parse_folder(name) or name in CHECKPOINTS for name in children)


def _has_segments(fs: FileSystem, path: str) -> bool:
    return any(names.parse_offset(name, names.LOG) is not None for name in fs.list(path))


def _read_checkpoints(fs: FileSystem, path: str) -> tuple[dict[str, Offsets], list[Finding]]:
    offsets: dict[str, Offsets] = {}
    damaged = []
    for name in CHECKPOINTS:
        try:
            offsets[name] = _settled(partial(_read_checkpoint, fs, path, name))
        except CorruptCheckpoint as error:
            damaged.append(Finding(Severity.ERROR, os.path.join(path, name), None, str(error)))
    return offsets, damaged


def _read_checkpoint(fs: FileSystem, path: str, name: str) -> Offsets:
    return CheckpointFolder(fs, path).read(name)


def _read_snapshot(fs: FileSystem, path: str) -> list[Producer]:
    return snapshots.decode(fs.read(path))


def _settled(read: Callable[[], T]) -> T:
    """Read, and read once more after an error: a broker may be writing there."""
    try:
        return read()
    except (CorruptCheckpoint, CorruptIndex, CorruptSnapshot):
        return read()


class _Partition:
    """The verification of one partition's folder."""

    def __init__(self, fs: FileSystem, path: str, offsets: dict[str, Offsets]) -> None:
        self._fs = fs
        self._path = path
        self._present = sorted(fs.list(path))
        place = names.parse_folder(os.path.basename(os.path.abspath(path)))
        assert place is not None
        self._checkpointed = {
            name: known[place] for name, known in offsets.items() if place in known
        }
        self._recovery_point = self._checkpointed.get(checkpoints.RECOVERY_POINT, 0)
        self._epochs = EpochCache([])
        self._expected = 0

    def findings(self) -> Findings:
        yield from self._beside_the_segments()
        bases = [
            base
            for name in self._present
            if (base := names.parse_offset(name, names.LOG)) is not None
        ]
        if bases:
            self._expected = bases[0]
        for base in bases:
            if base < self._expected:
                yield self._error(
                    names.offset_name(base, names.LOG),
                    None,
                    f"begins before the segment before it ends, at {self._expected}",
                )
                self._expected = base
            # A running broker has deleted the missing files since the folder was listed.
            with contextlib.suppress(FileNotFoundError):
                yield from self._segment(base, is_last=base == bases[-1])
        yield from self._against_checkpoints()

    def _beside_the_segments(self) -> Findings:
        """Epochs, topic id, snapshots and leftovers."""
        for name in self._present:
            path = os.path.join(self._path, name)
            try:
                if name == names.EPOCHS:
                    self._epochs = EpochCache.load(self._fs, self._path)
                elif name == names.PARTITION_METADATA:
                    checkpoints.parse_partition_metadata(self._fs.read(path))
                elif names.parse_offset(name, names.SNAPSHOT) is not None:
                    _settled(partial(_read_snapshot, self._fs, path))
                elif (offset := names.parse_offset(name, names.RECENT_BATCHES)) is not None:
                    _settled(partial(snapshots.read, self._fs, self._path, offset))
                elif name.endswith(names.CORRUPT):
                    problem = "set aside by a recovery: `headrace log dump --deep` shows it"
                    yield Finding(Severity.INFO, path, None, problem)
                elif name.endswith((names.CLEANED, names.SWAP, names.DELETED, names.TEMPORARY)):
                    yield Finding(Severity.INFO, path, None, "a leftover, to be removed or renamed")
                elif names.parse_offset(name, os.path.splitext(name)[1]) is not None:
                    yield from self._orphan(name)
            except CorruptCheckpoint as error:
                yield Finding(Severity.ERROR, path, None, str(error))
            except (CorruptSnapshot, OSError) as error:
                if self._fs.exists(path):
                    problem = f"{error}; producers come from the log"
                    yield Finding(Severity.WARNING, path, None, problem)

    def _orphan(self, name: str) -> Findings:
        stem, suffix = os.path.splitext(name)
        if suffix in names.SEGMENT_SUFFIXES and stem + names.LOG not in self._present:
            yield Finding(
                Severity.WARNING, os.path.join(self._path, name), None, "an index without its log"
            )

    def _segment(self, base: int, is_last: bool) -> Findings:
        """One segment: its batches, and whether each index points to them."""
        offsets, broken = self._index(OffsetIndex, base, names.OFFSET_INDEX)
        yield from broken
        times, broken = self._index(TimeIndex, base, names.TIME_INDEX)
        yield from broken
        aborted, broken = self._aborted(base)
        yield from broken
        index_name = names.offset_name(base, names.OFFSET_INDEX)
        time_name = names.offset_name(base, names.TIME_INDEX)
        log_name = names.offset_name(base, names.LOG)
        markers = {entry.last_offset for entry in aborted}
        # Indexes and batches both ascend: they are walked once, side by side.
        offsets.reverse()
        times.reverse()
        path = os.path.join(self._path, log_name)
        file = self._fs.open(path, size=self._fs.size(path))
        try:
            for found in iter_salvaged(file, file.size, self._expected):
                position, header, *_ = found
                if header is None:
                    if found.is_last and self._fs.size(path) > file.size:
                        return  # a running broker is in the middle of an append
                    yield self._structure(log_name, found, is_last)
                    if found.is_last:
                        return
                    continue
                yield from self._batch(log_name, base, found, header)
                while offsets and offsets[-1][1] <= position:
                    relative, at = offsets.pop()
                    if (base + relative, at) != (header.last_offset, position):
                        problem = f"points from offset {base + relative} to {at}, where it is not"
                        yield self._warning(index_name, problem)
                while times and base + times[-1][1] <= header.last_offset:
                    timestamp, relative = times.pop()
                    if timestamp != header.max_timestamp:
                        problem = f"has {timestamp} for the batch with offset {base + relative}"
                        yield self._warning(time_name, problem)
                if header.is_control:
                    markers.discard(header.last_offset)
                self._expected = max(self._expected, header.next_offset)
        finally:
            file.close()
        for name, left in ((index_name, offsets), (time_name, times)):
            if left:
                yield self._warning(name, f"{len(left)} entries point beyond the end of the log")
        for marker in sorted(markers):
            name = names.offset_name(base, names.TXN_INDEX)
            yield self._error(name, None, f"no abort marker at offset {marker}")

    def _batch(self, name: str, base: int, found: Salvaged, header: BatchHeader) -> Findings:
        position = found.position
        if found.damage is not None:
            yield self._error(name, position, found.damage)
        elif header.base_offset < self._expected:
            problem = f"offset {header.base_offset} is below {self._expected}"
            yield self._error(name, position, problem)
        elif header.last_offset - base > RELATIVE_OFFSET_MAX:
            yield self._error(name, position, f"offset {header.last_offset} is too far from {base}")
        elif self._epochs.epoch_for(header.base_offset) not in (NO_EPOCH, header.leader_epoch):
            yield self._error(name, position, f"leader epoch {header.leader_epoch} is not expected")
        else:
            try:
                for _ in iter_records(found.batch):
                    pass
            except InvalidBatch as error:
                # The producer sent it like this: the batch is complete, its records are not.
                yield self._warning(name, f"records do not unpack: {error}", position)

    def _structure(self, name: str, found: Salvaged, is_last: bool) -> Finding:
        """Bytes that are not a batch: a torn tail at the end of the log, else damage."""
        if is_last and found.is_last and self._expected >= self._recovery_point:
            problem = f"{found.damage}: a torn tail, cut at the next start"
            return self._warning(name, problem, found.position)
        return self._error(name, found.position, str(found.damage))

    def _index(
        self, kind: type[SparseIndex], base: int, suffix: str
    ) -> tuple[list[tuple[int, int]], list[Finding]]:
        """The entries of an ascending index, or what is wrong with it."""
        name = names.offset_name(base, suffix)
        if name not in self._present:
            return [], []
        try:
            path = os.path.join(self._path, name)
            entries = _settled(lambda: index_entries(kind, self._fs.read(path)))
        except CorruptIndex as error:
            return [], [self._warning(name, f"{error}; it is rebuilt")]
        for before, after in pairwise(entries):
            if before[0] >= after[0] or before[1] >= after[1]:
                problem = f"entry {after} does not ascend from {before}; it is rebuilt"
                return [], [self._warning(name, problem)]
        return entries, []

    def _aborted(self, base: int) -> tuple[list[AbortedTxn], list[Finding]]:
        name = names.offset_name(base, names.TXN_INDEX)
        if name not in self._present:
            return [], []
        path = os.path.join(self._path, name)
        try:
            return _settled(lambda: TxnIndex(self._fs, path, self._fs.size(path)).aborted), []
        except CorruptIndex as error:
            return [], [self._error(name, None, str(error))]

    def _against_checkpoints(self) -> Findings:
        for name, offset in self._checkpointed.items():
            if offset > self._expected:
                path = os.path.join(os.path.dirname(os.path.abspath(self._path)), name)
                folder = os.path.basename(os.path.abspath(self._path))
                problem = f"has {offset} for {folder}, which ends at {self._expected}"
                yield Finding(Severity.ERROR, path, None, problem)

    def _error(self, name: str, position: int | None, problem: str) -> Finding:
        return Finding(Severity.ERROR, os.path.join(self._path, name), position, problem)

    def _warning(self, name: str, problem: str, position: int | None = None) -> Finding:
        return Finding(Severity.WARNING, os.path.join(self._path, name), position, problem)

"""One segment: a `.log` file with its offset, time and transaction index, named by base offset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain

from headrace.protocol.batch import BatchHeader, read_header
from headrace.storage import names
from headrace.storage.files import File, FileSystem, pread
from headrace.storage.log.scan import SCAN_CHUNK_BYTES, BadBatch, damage, iter_headers
from headrace.storage.log.sparse_index import CorruptIndex, OffsetIndex, TimeIndex
from headrace.storage.log.txn_index import TxnIndex

NO_TIMESTAMP = -1
RECENT_BATCHES_MAX = 1024
_RECENT_BATCHES_MIN = 512
_HINTS_MAX = 64
_NOWHERE = 1 << 63


class Segment:
    """A log file and its indexes; only the active one grows."""

    __slots__ = (
        "_hints",
        "_max_timestamp_offset",
        "_unindexed_bytes",
        "base_offset",
        "checked",
        "created_ms",
        "damage",
        "file",
        "first_timestamp",
        "folder",
        "index_damaged",
        "index_entries_max",
        "index_interval_bytes",
        "is_full",
        "max_timestamp",
        "offsets",
        "recent_from",
        "recent_nexts",
        "recent_positions",
        "roll_jitter_ms",
        "time_entries_max",
        "times",
        "trusted_position",
        "txn_index",
    )

    def __init__(
        self,
        folder: str,
        base_offset: int,
        file: File,
        offsets: OffsetIndex,
        times: TimeIndex,
        txn_index: TxnIndex,
        created_ms: int,
    ) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.file = file
        self.offsets = offsets
        self.times = times
        self.txn_index = txn_index
        self.created_ms = created_ms
        self.index_interval_bytes = 4096
        self.index_entries_max = self.time_entries_max = 1 << 31
        self.is_full = False
        self.roll_jitter_ms = 0
        # Timestamp of the first batch, for rolling by time; read by `learn_times`.
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = -1
        self._unindexed_bytes = 0
        # Of the newest batches, without gaps: the offset after each and its position in the file.
        # They serve offsets from `recent_from` on.
        self.recent_from = _NOWHERE
        self.recent_nexts: list[int] = []
        self.recent_positions: list[int] = []
        # Batches from here on were checked by this process; below, readers check first.
        self.trusted_position = file.size
        # A range below it that readers have already checked.
        self.checked = (0, 0)
        self.index_damaged = False
        # Ranges of the file that recovery found not to be batches and left as they are.
        self.damage: list[tuple[int, int]] = []
        self._hints: dict[int, int] = {}

    @classmethod
    def create(cls, fs: FileSystem, folder: str, base_offset: int, created_ms: int) -> Segment:
        """A new, empty segment; its name is durable after the folder is synced."""
        stem = os.path.join(folder, names.offset_name(base_offset, ""))
        file = fs.open(stem + names.LOG, create=True)
        if file.size:
            file.truncate(0)
        return cls(
            folder,
            base_offset,
            file,
            OffsetIndex(fs, stem + names.OFFSET_INDEX),
            TimeIndex(fs, stem + names.TIME_INDEX),
            TxnIndex(fs, stem + names.TXN_INDEX),
            created_ms,
        )

    @classmethod
    def open(
        cls, fs: FileSystem, folder: str, base_offset: int, sizes: Mapping[str, int], now_ms: int
    ) -> Segment:
        """An existing segment, not read yet; raises CorruptIndex if a file's size is wrong."""
        stem = names.offset_name(base_offset, "")
        path = os.path.join(folder, stem)
        return cls(
            folder,
            base_offset,
            fs.open(path + names.LOG, size=sizes[stem + names.LOG]),
            OffsetIndex(
                fs,
                path + names.OFFSET_INDEX,
                OffsetIndex.entries_in(sizes.get(stem + names.OFFSET_INDEX, 0)),
            ),
            TimeIndex(
                fs,
                path + names.TIME_INDEX,
                TimeIndex.entries_in(sizes.get(stem + names.TIME_INDEX, 0)),
            ),
            TxnIndex(fs, path + names.TXN_INDEX, sizes.get(stem + names.TXN_INDEX, 0)),
            now_ms,
        )

    def configure(self, interval_bytes: int, index_bytes: int, roll_jitter_ms: int) -> None:
        """Apply the settings of an active segment."""
        self.index_interval_bytes = interval_bytes
        self.index_entries_max = index_bytes // OffsetIndex.ENTRY.size
        self.time_entries_max = index_bytes // TimeIndex.ENTRY.size - 1
        self.roll_jitter_ms = roll_jitter_ms
        self._check_full()

    @property
    def size(self) -> int:
        return self.file.size

    def record(self, last_offset: int, position: int, size: int, max_timestamp: int) -> None:
        """Index a batch that was just written at position."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._unindexed_bytes > self.index_interval_bytes:
            self.offsets.append(last_offset - self.base_offset, position)
            self._index_time()
            self._unindexed_bytes = 0
            self._check_full()
        self._unindexed_bytes += size

    def skip_damage(self, start: int, end: int) -> None:
        """Remember bytes that are not batches; the batch after them gets an index entry."""
        self.damage.append((start, end))
        self._unindexed_bytes = self.index_interval_bytes + 1

    def sound_ranges(self, start: int) -> list[tuple[int, int]]:
        """The ranges, from a position on, in which batches follow one another."""
        edges = [start, *chain.from_iterable(self.damage), self.size]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(max(begin, start), end) for begin, end in pairs if end > start]

    def _check_full(self) -> None:
        self.is_full = (
            self.offsets.count >= self.index_entries_max
            or self.times.count >= self.time_entries_max
        )

    def remember(self, base_offset: int, next_offset: int, position: int) -> None:
        """Add a batch to the newest, which readers at the end find without an index."""
        nexts = self.recent_nexts
        if not nexts:
            self.recent_from = base_offset
        nexts.append(next_offset)
        self.recent_positions.append(position)
        if len(nexts) > RECENT_BATCHES_MAX:
            # Not below the start of the log, to which `advance_start` may have raised it.
            self.recent_from = max(self.recent_from, nexts[-_RECENT_BATCHES_MIN - 1])
            del nexts[:-_RECENT_BATCHES_MIN]
            del self.recent_positions[:-_RECENT_BATCHES_MIN]

    def forget_recent(self) -> None:
        """Free the memory of the newest batches; readers use the index from now on."""
        self.recent_from = _NOWHERE
        self.recent_nexts = []
        self.recent_positions = []

    def cool(self) -> None:
        """Free the memory of the indexes; the next search reads them from disk."""
        self.offsets.cool()
        self.times.cool()

    def _index_time(self) -> None:
        if self.max_timestamp >= 0:
            self.times.append_if_later(
                self.max_timestamp, self._max_timestamp_offset - self.base_offset
            )

    def seal(self) -> None:
        """Write the indexes in full, with a last time entry that covers the whole segment."""
        self._index_time()
        self.offsets.write()
        self.times.write()
        self.txn_index.write()

    def unsynced_index_files(self) -> list[File]:
        """Index files with entries that no sync has covered."""
        files = self.offsets.unsynced_file(), self.times.unsynced_file()
        return [file for file in files if file is not None] + self.txn_index.unsynced_files()

    def learn_times(self, sealed: bool = True) -> None:
        """Read the first and the greatest timestamp of a loaded segment.

        Raises BadBatch, and CorruptIndex if the time index cannot be right; the index of a sealed
        segment has at least one entry.
        """
        if not self.size:
            return
        _, header = next(iter_headers(self.file, 0, self.size))
        self.first_timestamp = header.max_timestamp
        last = self.times.last()
        if last is None:
            if header.max_timestamp >= 0 and sealed:
                raise CorruptIndex(f"{self.times.path} has no entries")
            return
        timestamp, relative = last
        found = self.locate(self.base_offset + relative)
        if found is None or found[1].max_timestamp != timestamp:
            raise CorruptIndex(f"{self.times.path} does not lead to its batch")
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self._max_timestamp_offset = found[1].last_offset

    def earliest_timestamp(self) -> int:
        """The timestamp of the first batch, read once; raises BadBatch."""
        if self.first_timestamp == NO_TIMESTAMP and self.size:
            _, header = next(iter_headers(self.file, 0, self.size))
            self.first_timestamp = header.max_timestamp
        return self.first_timestamp

    def largest_timestamp(self) -> int:
        """The greatest timestamp in the segment, for retention and lookups by time."""
        if self.max_timestamp == NO_TIMESTAMP and self.size:
            try:
                self.learn_times()
            except CorruptIndex:
                self.index_damaged = True
                self._scan_times()
        return self.max_timestamp

    def _scan_times(self) -> None:
        for _, header in iter_headers(self.file, 0, self.size, chunk_bytes=SCAN_CHUNK_BYTES):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch with the greatest timestamp."""
        self.largest_timestamp()
        return self._max_timestamp_offset

    def modified_ms(self) -> int:
        """When the log file was last written, for segments whose records have no timestamps."""
        return self.offsets.fs.modified_ms(self.file.path)

    def locate(self, offset: int, wait: bool = True) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch that ends at or after offset.

        Raises BadBatch for damage on the way, BlockingIOError if wait is off and the disk is
        needed.
        """
        start = self._hints.get(offset)
        if start is None:
            start = self._indexed_position(offset, wait)
        expected = self.base_offset
        previous = -1
        for position, header in iter_headers(self.file, start, self.size, wait=wait):
            if header.base_offset < expected:
                raise BadBatch(position, f"offset {header.base_offset} is below {expected}")
            expected = header.next_offset
            if expected > offset:
                if header.base_offset > offset and 0 <= previous < self.trusted_position:
                    # Compacted away, or the end of the batch before it is wrong.
                    self._check_crc(previous, position - previous, wait)
                return position, header
            previous = position
        return None

    def _check_crc(self, position: int, size: int, wait: bool) -> None:
        batch = pread(self.file, size, position, wait)
        if reason := damage(batch, read_header(batch)):
            raise BadBatch(position, reason)

    def trusted_end(self, position: int) -> int:
        """The end of the checked batches from position on; position itself if they need a check."""
        if position >= self.trusted_position:
            return self.size
        start, end = self.checked
        if not start <= position < end:
            return position
        return self.size if end >= self.trusted_position else end

    def mark_checked(self, start: int, end: int) -> None:
        """Remember that the batches from start to end are sound."""
        known_start, known_end = self.checked
        if known_start <= start <= known_end:
            self.checked = (known_start, max(end, known_end))
        else:
            self.checked = (start, end)

    def hint(self, offset: int, position: int) -> None:
        """Remember where the batch of an offset starts, for a reader that continues there."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            hints.pop(next(iter(hints)), None)
        hints[offset] = position

    def _indexed_position(self, offset: int, wait: bool) -> int:
        """Where to start searching for an offset; 0 if the index does not help."""
        if self.index_damaged:
            return 0
        try:
            entry = self.offsets.floor(offset - self.base_offset, wait)
        except CorruptIndex:
            entry, self.index_damaged = None, True
        if entry is not None and not self.is_truthful(entry, wait):
            self.index_damaged = True
        if self.index_damaged and not wait:
            raise BlockingIOError  # a search from the start of the file would block the loop
        return 0 if entry is None or self.index_damaged else entry[1]

    def is_truthful(self, entry: tuple[int, int], wait: bool = True) -> bool:
        """Whether an entry has the last offset of the batch at its position, as it must."""
        relative, position = entry
        try:
            _, header = next(iter_headers(self.file, position, self.size, wait=wait))
        except (BadBatch, StopIteration):
            return False
        return header.last_offset == self.base_offset + relative

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the log file at a batch boundary, and the indexes with it."""
        self.file.truncate(position)
        self.trusted_position = min(self.trusted_position, position)
        self.checked = (0, 0)
        self.forget_recent()
        self._hints.clear()
        try:
            self.keep_indexes(position, next_offset)
        except CorruptIndex:
            self.reset_indexes()
            for at, header in iter_headers(self.file, 0, position, chunk_bytes=SCAN_CHUNK_BYTES):
                self.record(header.last_offset, at, header.size, header.max_timestamp)

    def keep_indexes(self, position: int, next_offset: int) -> None:
        """Drop index entries of batches at or after position, and prepare for appends there.

        Raises BadBatch and CorruptIndex.
        """
        self.offsets.keep_below_value(position)
        self.times.keep_below_value(next_offset - self.base_offset)
        self.txn_index.keep_below(next_offset)
        self._forget_times()
        self.relearn(position)

    def reset_indexes(self) -> None:
        """Drop all index entries, to build them again with `record`."""
        self.offsets.reset([])
        self.times.reset([])
        self._forget_times()
        self._unindexed_bytes = 0

    def _forget_times(self) -> None:
        self.max_timestamp = self.first_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = -1

    def last_indexed_position(self) -> int:
        last = self.offsets.last()
        return last[1] if last else 0

    def relearn(self, end: int | None = None, sealed: bool = False) -> int:
        """Restore the state for appends from the indexes and the last batches; the end offset.

        Raises BadBatch and CorruptIndex.
        """
        end = self.size if end is None else end
        self.learn_times(sealed)
        start = self.last_indexed_position()
        end_offset = self.base_offset
        self._unindexed_bytes = 0
        for position, header in iter_headers(self.file, start, end):
            end_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
            self._unindexed_bytes = position + header.size - start
        return end_offset

    def files(self) -> list[str]:
        indexes = [self.offsets.path, self.times.path]
        return [self.file.path, *indexes, self.txn_index.path, self.txn_index.checksum_path]

    def rename(self, fs: FileSystem, suffix: str) -> None:
        """Add a suffix to the names of all files; readers keep reading the same bytes."""
        self.hold()
        for path in self.files():
            if fs.exists(path):
                fs.rename(path, path + suffix)
        self.renamed(suffix)

    def hold(self) -> None:
        """Keep reading the present files, even after other files get their names."""
        self.file.hold()
        self.offsets.hold()
        self.times.hold()
        self.txn_index.hold()

    def renamed(self, suffix: str) -> None:
        """Follow a rename of the files."""
        self.file.path += suffix
        for index in (self.offsets, self.times, self.txn_index):
            index.renamed(index.path + suffix)

    def copy_state_of(self, original: Segment) -> None:
        """Take over what is known of the segment that this one copies, but trust no more bytes."""
        self.created_ms = original.created_ms
        self.first_timestamp = original.first_timestamp
        self.max_timestamp = original.max_timestamp
        self._max_timestamp_offset = original._max_timestamp_offset
        self._unindexed_bytes = original._unindexed_bytes
        self.index_damaged = original.index_damaged
        self.damage = list(original.damage)

    def moved(self, folder: str) -> None:
        """Follow a rename of the folder."""
        self.folder = folder
        self.file.path = os.path.join(folder, os.path.basename(self.file.path))
        for index in (self.offsets, self.times, self.txn_index):
            index.renamed(os.path.join(folder, os.path.basename(index.path)))

    def remove(self, fs: FileSystem) -> None:
        """Close and delete all files; a read in progress finishes."""
        self.close()
        for path in self.files():
            if fs.exists(path):
                fs.remove(path)

    def close(self) -> None:
        self.file.close()
        self.offsets.close()
        self.times.close()
        self.txn_index.close()

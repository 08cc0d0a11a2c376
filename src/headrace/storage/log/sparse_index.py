"""A sorted file of fixed-width (key, value) entries with a warm end in memory.

Readers mostly ask for the end of a log, so the last entries are kept in memory and searched first;
older entries are searched on disk, page by page. Memory is bounded, whatever the size of the file,
and a page fault on a cold index affects only readers of cold data.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from struct import Struct

from headrace.storage.files import File, FileSystem, pread

WARM_ENTRIES_MAX = 2048
_WARM_ENTRIES_MIN = 1024
_PAGE_ENTRIES = 512
_KEY_MIN = -(1 << 63)


class CorruptIndex(ValueError):
    """An index file that cannot be right and has to be rebuilt from its log."""


class _Warm:
    """The last entries, in memory; grows only at its end, so other threads may search it."""

    __slots__ = ("first", "keys", "values")

    def __init__(self, first: int, keys: Iterable[int], values: Iterable[int]) -> None:
        self.first = first
        # Arrays, not lists: every active segment has them, and lists would take five times as much.
        self.keys = array("q", keys)
        self.values = array("q", values)


class _Page:
    """Consecutive entries as on disk, and the range of keys whose floor they hold."""

    __slots__ = ("count", "data", "high_key", "low_key")

    def __init__(self, data: bytes | bytearray, count: int, low_key: int, high_key: int) -> None:
        self.data = data
        self.count = count
        self.low_key = low_key
        self.high_key = high_key


class SparseIndex:
    """Entries (key, value), both ascending, on disk and at the end in memory."""

    ENTRY: Struct
    __slots__ = ("_file", "_on_disk", "_page", "_unsynced", "_warm", "count", "fs", "path")

    def __init__(self, fs: FileSystem, path: str, on_disk: int = 0) -> None:
        self.path = path
        self.count = on_disk
        self.fs = fs
        self._file: File | None = None
        self._on_disk = on_disk
        self._unsynced = False
        self._warm: _Warm | None = _Warm(0, [], []) if not on_disk else None
        self._page: _Page | None = None

    @classmethod
    def entries_in(cls, size_bytes: int) -> int:
        """How many entries a file of this size holds; raises CorruptIndex for a broken one."""
        count, rest = divmod(size_bytes, cls.ENTRY.size)
        if rest:
            raise CorruptIndex(f"{size_bytes} bytes are no multiple of {cls.ENTRY.size}")
        return count

    def append(self, key: int, value: int) -> None:
        """Add an entry in memory; `write` writes it to the file.

        Its batch is written by now, so a disk that fails is no matter here: the entries stay in
        memory, the next append tries again and the seal of the segment tells.
        """
        warm = self._warm or self._load_warm(wait=True)
        warm.values.append(value)
        warm.keys.append(key)  # last: a search in another thread reads the keys first
        self.count += 1
        if len(warm.keys) >= WARM_ENTRIES_MAX:
            with contextlib.suppress(OSError):
                self.write()
                keep = -_WARM_ENTRIES_MIN
                self._warm = _Warm(self.count + keep, warm.keys[keep:], warm.values[keep:])

    def write(self) -> None:
        """Write entries that are only in memory to the file; not durable before `sync`."""
        pending = self.count - self._on_disk
        if pending or self._file is None:
            file = self._open(create=True)
            if file.size != self._on_disk * self.ENTRY.size:
                file.truncate(self._on_disk * self.ENTRY.size)
            if pending:
                warm = self._warm or self._load_warm(wait=True)
                pack = self.ENTRY.pack
                entries = zip(warm.keys[-pending:], warm.values[-pending:], strict=True)
                file.append(b"".join([pack(key, value) for key, value in entries]))
                self._on_disk = self.count
            self._unsynced = True

    def unsynced_file(self) -> File | None:
        """The file, if it has entries that no sync has covered; returned once."""
        if not self._unsynced:
            return None
        self._unsynced = False
        return self._file

    def floor(self, key: int, wait: bool = True) -> tuple[int, int] | None:
        """The last entry whose key is at or below key, or None if all are above.

        Raises BlockingIOError when wait is off and the disk has to be read.
        """
        if not self.count:
            return None
        warm = self._warm or self._load_warm(wait)
        if not warm.first or warm.keys[0] <= key:
            at = bisect_right(warm.keys, key) - 1
            return (warm.keys[at], warm.values[at]) if at >= 0 else None
        page = self._page
        if page is None or not page.low_key <= key < page.high_key:
            page = self._page = self._find_page(key, warm, wait)
        unpack, width = self.ENTRY.unpack_from, self.ENTRY.size
        low, high = 0, page.count
        while low < high:
            middle = (low + high) // 2
            if unpack(page.data, middle * width)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return unpack(page.data, (low - 1) * width) if low else None

    def warm_floor_value(self, value: int) -> int:
        """The greatest value in memory that is at or below value; 0 without one."""
        warm = self._warm
        if warm is None:
            return 0
        at = bisect_right(warm.values, value) - 1
        return warm.values[at] if at >= 0 else 0

    def first_from_value(self, value: int) -> tuple[int, int] | None:
        """The first entry whose value is at or above value, or None; may wait for the disk."""
        if not self.count:
            return None
        warm = self._warm or self._load_warm(wait=True)
        at = bisect_left(warm.values, value)
        if at or not warm.first:
            return (warm.keys[at], warm.values[at]) if at < len(warm.values) else None
        low, high = 0, warm.first
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < value:
                low = middle + 1
            else:
                high = middle
        return self._entry(low) if low < warm.first else (warm.keys[0], warm.values[0])

    def _entry(self, number: int) -> tuple[int, int]:
        key, value = self.ENTRY.unpack(self._read(number, 1, wait=True))
        return key, value

    def last(self, wait: bool = True) -> tuple[int, int] | None:
        if not self.count:
            return None
        warm = self._warm or self._load_warm(wait)
        return warm.keys[-1], warm.values[-1]

    def entries(self) -> list[tuple[int, int]]:
        """All entries, from disk and memory."""
        self.write()
        data = self._open().pread(self._on_disk * self.ENTRY.size, 0)
        return [(key, value) for key, value in self.ENTRY.iter_unpack(data)]

    def keep_below_value(self, value: int) -> None:
        """Drop the entries whose value is at or above value."""
        entries = self.entries()
        kept = bisect_left([entry[1] for entry in entries], value)
        self.reset(entries[:kept] if kept < len(entries) else None)

    def reset(self, entries: list[tuple[int, int]] | None) -> None:
        """Replace all entries (None leaves them) in memory and in the file."""
        if entries is None:
            return
        data = b"".join([self.ENTRY.pack(*entry) for entry in entries])
        file = self._open(create=True)
        file.truncate(0)
        if data:
            file.append(data)
        self._unsynced = True
        self._page = None
        self._on_disk = self.count = len(entries)
        tail = entries[-_WARM_ENTRIES_MIN:]
        self._warm = _Warm(
            self.count - len(tail), (key for key, _ in tail), (value for _, value in tail)
        )

    def cool(self) -> None:
        """Free the memory of a sealed segment's index; the next search reads the disk.

        The file stays open: a sync of it may be under way.
        """
        if self._on_disk == self.count:
            self._warm = None if self.count else _Warm(0, [], [])
            self._page = None

    def close(self) -> None:
        """Close the file; the next search opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def renamed(self, path: str) -> None:
        """Follow a rename of the file."""
        self.path = path
        if self._file is not None:
            self._file.path = path

    def hold(self) -> None:
        """Keep reading the present file even after another one gets its name."""
        if self._on_disk:
            self._open().hold()

    def _open(self, create: bool = False) -> File:
        file = self._file
        if file is None:
            if create:
                file = self.fs.open(self.path, create=True)
            else:
                file = self.fs.open(self.path, size=self._on_disk * self.ENTRY.size)
            self._file = file
        return file

    def _load_warm(self, wait: bool) -> _Warm:
        first = max(0, self._on_disk - _WARM_ENTRIES_MIN)
        data = self._read(first, self._on_disk - first, wait)
        entries = list(self.ENTRY.iter_unpack(data))
        warm = _Warm(first, (key for key, _ in entries), (value for _, value in entries))
        if any(a >= b for a, b in pairwise(warm.keys)) or warm.values[0] < 0:
            raise CorruptIndex(f"{os.path.basename(self.path)}: entries do not ascend")
        self._warm = warm
        return warm

    def _find_page(self, key: int, warm: _Warm, wait: bool) -> _Page:
        """The page before the warm end that holds the floor of key, by binary search on disk."""
        low, high = 0, (warm.first - 1) // _PAGE_ENTRIES
        low_key, high_key = _KEY_MIN, warm.keys[0]
        while low < high:
            middle = (low + high + 1) // 2
            (first_key, _) = self.ENTRY.unpack(self._read(middle * _PAGE_ENTRIES, 1, wait))
            if first_key > key:
                high, high_key = middle - 1, first_key
            else:
                low, low_key = middle, first_key
        first = low * _PAGE_ENTRIES
        count = min(_PAGE_ENTRIES, warm.first - first)
        return _Page(self._read(first, count, wait), count, low_key, high_key)

    def _read(self, first: int, count: int, wait: bool) -> bytes | bytearray:
        width = self.ENTRY.size
        data = pread(self._open(), count * width, first * width, wait)
        if len(data) != count * width or not count:
            raise CorruptIndex(f"{os.path.basename(self.path)}: shorter than its entries")
        return data


class OffsetIndex(SparseIndex):
    """`.index`: from an offset to a position in the log file, one entry every few KB.

    As in Apache Kafka, an entry is the last offset of a batch, relative to the segment's base
    (int32), and the position at which that batch starts (int32).
    """

    ENTRY = Struct(">ii")
    __slots__ = ()


class TimeIndex(SparseIndex):
    """`.timeindex`: from a timestamp to the offset up to which no later timestamp occurs.

    As in Apache Kafka, an entry is the greatest timestamp of the segment so far (int64) and the
    last offset, relative to the segment's base (int32), of the batch that has it.
    """

    ENTRY = Struct(">qi")
    __slots__ = ()

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry unless its timestamp is already covered."""
        last = self.last()
        if last is None or timestamp > last[0]:
            self.append(timestamp, relative_offset)

"""The warm and cold search of an index, against plain bisection."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import pytest
from tests.storage.faulty_files import FaultyFileSystem

from headrace.storage import OsFileSystem
from headrace.storage.log.sparse_index import WARM_ENTRIES_MAX, CorruptIndex, OffsetIndex, TimeIndex

COUNTS = (0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 5000)


def build(path: Path, count: int) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index = OffsetIndex(OsFileSystem(), str(path))
    entries = [(3 * number + 2, 100 * number) for number in range(count)]
    for entry in entries:
        index.append(*entry)
    return index, entries


def floor(entries: list[tuple[int, int]], key: int) -> tuple[int, int] | None:
    at = bisect_right(entries, (key, 1 << 40)) - 1
    return entries[at] if at >= 0 else None


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("reopened", [False, True])
def test_floor_finds_the_last_entry_at_or_below(tmp_path: Path, count: int, reopened: bool) -> None:
    index, entries = build(tmp_path / "x.index", count)
    if reopened:
        index.write()
        index = OffsetIndex(OsFileSystem(), str(tmp_path / "x.index"), count)
    keys = range(3 * count + 5) if count < 600 else range(0, 3 * count + 5, 7)
    for key in keys:
        assert index.floor(key) == floor(entries, key)
    assert index.last() == (entries[-1] if entries else None)
    assert index.entries() == entries


def test_memory_stays_bounded(tmp_path: Path) -> None:
    index, entries = build(tmp_path / "x.index", 20_000)
    assert index._warm is not None
    assert len(index._warm.keys) < WARM_ENTRIES_MAX
    assert index.floor(5) == floor(entries, 5)


def test_cold_search_does_not_wait_for_the_disk_unless_told(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    index = OffsetIndex(fs, str(tmp_path / "x.index"))
    for number in range(5000):
        index.append(number, number)
    fs.fail("pread_nowait", error=11, times=100)
    assert index.floor(4999, wait=False) == (4999, 4999)  # warm: no disk needed
    with pytest.raises(BlockingIOError):
        index.floor(3, wait=False)
    assert index.floor(3) == (3, 3)


def test_keeping_below_a_value_drops_the_rest(tmp_path: Path) -> None:
    for keep in (0, 1, 700, 2999, 3000):
        index, entries = build(tmp_path / f"{keep}.index", 3000)
        index.keep_below_value(100 * keep)
        assert index.entries() == entries[:keep]
        index.append(50_000, 500_000)
        assert index.floor(60_000) == (50_000, 500_000)
        index.write()
        again = OffsetIndex(OsFileSystem(), index.path, keep + 1)
        assert again.entries() == [*entries[:keep], (50_000, 500_000)]


def test_sizes_that_are_no_multiple_are_refused() -> None:
    assert OffsetIndex.entries_in(16) == 2
    with pytest.raises(CorruptIndex):
        OffsetIndex.entries_in(17)
    with pytest.raises(CorruptIndex):
        TimeIndex.entries_in(16)


def test_time_entries_only_grow(tmp_path: Path) -> None:
    index = TimeIndex(OsFileSystem(), str(tmp_path / "x.timeindex"))
    for timestamp, offset in ((10, 1), (10, 2), (5, 3), (11, 4)):
        index.append_if_later(timestamp, offset)
    assert index.entries() == [(10, 1), (11, 4)]


@pytest.mark.parametrize("count", [0, 1, 5, WARM_ENTRIES_MAX + 700])
@pytest.mark.parametrize("reopened", [False, True])
def test_first_entry_from_a_value_on_is_found(tmp_path: Path, count: int, reopened: bool) -> None:
    path = str(tmp_path / "index")
    index = OffsetIndex(OsFileSystem(), path)
    entries = [(3 * number, 10 * number) for number in range(count)]
    for entry in entries:
        index.append(*entry)
    index.write()
    if reopened:
        index = OffsetIndex(OsFileSystem(), path, count)
    for value in [*range(60), *range(0, 10 * count + 20, 37), 10 * count - 10]:
        expected = next((entry for entry in entries if entry[1] >= value), None)
        assert index.first_from_value(value) == expected

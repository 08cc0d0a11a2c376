"""Compacted segments take the place of others, whenever the power fails."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.storage.batches import (
    FOLDER,
    NOW_MS,
    append,
    batch,
    checkpoint,
    flush,
    open_test_log,
    values,
)
from tests.storage.faulty_files import FaultyFileSystem, PowerCut, PowerLossFileSystem

from headrace.protocol.batch import iter_headers
from headrace.storage import Log, LogConfig, OsFileSystem, names
from headrace.storage.cleaner.output import CleanedSegment
from headrace.storage.files import FileSystem

SIZE = len(batch([b"x" * 100]))
CONFIG = LogConfig(segment_bytes=2 * SIZE, cleanup_policy=frozenset({"compact"}))


def replace_segments(
    log: Log, old_bases: Sequence[int], new_bases: Sequence[int], now_ms: int
) -> None:
    """Swap cleaned segments in, all on one thread; raises what went wrong."""
    swap = log.begin_swap(old_bases, new_bases)
    swap.run()
    swap.complete(now_ms)
    if swap.error is not None:
        raise swap.error


def fill(fs: FileSystem, folder: str = FOLDER) -> Log:
    """Offsets 0 to 8 in segments 0, 2, 4, 6, 8."""
    log = open_test_log(fs, folder, config=CONFIG)
    for number in range(9):
        append(log, b"%d" % number * 100)
    flush(log)
    for path in ("/", "/data", log.dir):
        if fs.exists(path) and folder == FOLDER:
            fs.sync_dir(path)
    log.high_watermark = log.end_offset
    return log


def clean(log: Log, sources: list[int], keep: set[int]) -> None:
    """Do the cleaner's work: copy the batches to keep into `.cleaned` files, synced."""
    cleaned = CleanedSegment(log.fs, log.dir, sources[0], 50)
    for segment in log.segments:
        if segment.base_offset in sources:
            data = bytes(segment.file.pread(segment.size, 0))
            for position, header in iter_headers(data):
                if header.base_offset in keep:
                    cleaned.append(data[position : position + header.size])
    cleaned.finish()


def offsets(log: Log) -> list[int]:
    return [offset for offset, _ in values(log)]


def test_readers_see_the_new_segments_and_finish_with_the_old(tmp_path: Path) -> None:
    log = fill(OsFileSystem(), str(tmp_path))
    piece = log.read(2, 1 << 20, limit=9)
    assert piece is not None
    data = piece.read()
    clean(log, [0, 2, 4], {1, 5})
    swap = log.begin_swap([0, 2, 4], [0])
    swap.run()
    assert offsets(log) == list(range(9))  # readers keep the old ones until it is completed
    swap.complete(NOW_MS)
    assert offsets(log) == [1, 5, 6, 7, 8]
    assert [segment.base_offset for segment in log.segments] == [0, 6, 8]
    assert piece.read() == data
    for segment in log.deleted_segments.take(NOW_MS + CONFIG.file_delete_delay_ms):
        segment.remove(log.fs)
    assert not [n for n in os.listdir(tmp_path) if n.endswith((".deleted", ".swap", ".cleaned"))]
    append(log, b"next")
    assert offsets(open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG))[:2] == [1, 5]


def test_segments_may_be_emptied(tmp_path: Path) -> None:
    log = fill(OsFileSystem(), str(tmp_path))
    clean(log, [2, 4], set())
    replace_segments(log, [2, 4], [2], NOW_MS)
    assert offsets(log) == [0, 1, 6, 7, 8]
    again = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    assert offsets(again) == [0, 1, 6, 7, 8]


@pytest.mark.parametrize("old", [[], [1], [0, 4], [8], [6, 8]])
def test_only_sealed_neighbours_can_be_replaced(tmp_path: Path, old: list[int]) -> None:
    log = fill(OsFileSystem(), str(tmp_path))
    with pytest.raises(ValueError, match=r"neighbours|active"):
        log.begin_swap(old, [0])


def test_retention_waits_for_a_swap(tmp_path: Path) -> None:
    from headrace.storage.log import retention

    log = fill(OsFileSystem(), str(tmp_path))
    clean(log, [0, 2], {1})
    swap = log.begin_swap([0, 2], [0])
    log.delete_records(6)
    assert retention.apply(log, NOW_MS) == 0
    swap.run()
    swap.complete(NOW_MS)
    checkpoint(log)
    assert retention.apply(log, NOW_MS) == 2
    assert log.segments[0].base_offset == 6


def test_failed_swap_takes_the_log_offline_and_is_completed_on_opening(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    log = fill(fs, str(tmp_path))
    clean(log, [0, 2, 4], {1, 5})
    fs.fail("rename", nth=6)
    with pytest.raises(OSError, match="Input/output"):
        replace_segments(log, [0, 2, 4], [0], NOW_MS)
    assert log.offline_error is not None
    again = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    assert offsets(again) == [1, 5, 6, 7, 8]


@pytest.mark.parametrize("keep", [{1, 5}, {5}, {0}, set()], ids=str)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_crash_at_every_operation_leaves_all_old_or_all_new(
    keep: set[int], checkpointed: bool
) -> None:
    before = list(range(9))
    after = [*sorted(keep), 6, 7, 8]
    seen = set()
    for cut_at in range(200):
        fs = PowerLossFileSystem()
        log = fill(fs)
        point = checkpoint(log) if checkpointed else 0
        fs.cut_at = fs.operations + cut_at
        done = False
        with contextlib.suppress(PowerCut):
            clean(log, [0, 2, 4], keep)
            replace_segments(log, [0, 2, 4], [0], NOW_MS)
            done = True
        rng = random.Random(cut_at)
        for state in range(8):
            disk = fs.crash(rng if state else None, keep_probability=(0.5, 1)[state == 1])
            while rng.random() < 0.3:  # and again while it is being completed
                disk.cut_at = rng.randint(0, 10)
                with contextlib.suppress(PowerCut):
                    open_test_log(disk, config=CONFIG, recovery_point=point)
                disk = disk.crash(rng)
            recovered = open_test_log(disk, config=CONFIG, recovery_point=point)
            found = offsets(recovered)
            assert found in (before, after)
            if done:
                assert found == after
            seen.add(tuple(found))
            for offset in found:
                piece = recovered.read(offset, 1, limit=9)
                assert piece is not None
            leftovers = [n for n in disk.list(FOLDER) if n.endswith((".swap", ".cleaned"))]
            assert leftovers == []
        if done:
            break
    assert seen == {tuple(before), tuple(after)}


@pytest.mark.parametrize("decided", [True, False])
def test_swap_left_by_apache_kafka_is_completed_or_undone(tmp_path: Path, decided: bool) -> None:
    log = fill(OsFileSystem(), str(tmp_path))
    clean(log, [0, 2, 4], {1, 5})
    log.close()
    for suffix in names.SEGMENT_SUFFIXES:
        path = tmp_path / (names.offset_name(0, suffix) + names.CLEANED)
        if path.exists() and (decided or suffix != names.LOG):
            path.rename(tmp_path / (names.offset_name(0, suffix) + names.SWAP))
    again = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    assert offsets(again) == ([1, 5, 6, 7, 8] if decided else list(range(9)))


def test_names_of_new_segments_are_durable_before_the_plan() -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    log = fill(fs)
    clean(log, [0, 2], keep={0})
    replace_segments(log, [0, 2], [0], NOW_MS)
    clean(log, [0, 4], keep={0})  # how far the log is compacted is known and not written again
    fs.calls.clear()
    replace_segments(log, [0, 4], [0], NOW_MS)
    planned = next(at for at, (_, path) in enumerate(fs.calls) if "swap-plan" in path)
    assert ("sync_dir", log.dir) in fs.calls[:planned]


def test_swap_leaves_a_deleted_log_alone() -> None:
    fs = PowerLossFileSystem()
    log = fill(fs)
    clean(log, [0, 2], keep={0})
    swap = log.begin_swap([0, 2], [0])
    log.deleted = True
    before = fs.list(log.dir)
    swap.run()
    swap.complete(NOW_MS)
    assert fs.list(log.dir) == before
    assert log.offline_error is None
    assert log.swap is None


def test_swap_on_a_full_disk_is_put_off_until_it_is_decided() -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    log = fill(fs)
    clean(log, [0, 2], keep={0})
    fs.fail("write", error=errno.ENOSPC, path_has="swap-plan")
    with pytest.raises(OSError, match="No space"):
        replace_segments(log, [0, 2], [0], NOW_MS)
    assert log.offline_error is None
    assert offsets(log) == list(range(9))
    fs.fail("rename", error=errno.ENOSPC, path_has="swap-plan")
    with pytest.raises(OSError, match="No space"):
        replace_segments(log, [0, 2], [0], NOW_MS)
    assert log.offline_error is not None

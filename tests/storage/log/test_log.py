"""Appends and reads of a log."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.storage.batches import (
    NOW_MS,
    append,
    batch,
    checkpoint,
    open_test_log,
    read_all,
    values,
)
from tests.storage.faulty_files import FaultyFileSystem, PowerLossFileSystem

from headrace.protocol.batch import read_header
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import LogConfig, Origin, OsFileSystem
from headrace.storage.log.segment import RECENT_BATCHES_MAX
from headrace.storage.log.sparse_index import WARM_ENTRIES_MAX


def test_batches_get_consecutive_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    assert append(log, b"a", b"b") == 0
    info = log.append(batch([b"c"]), leader_epoch=3, now_ms=NOW_MS)
    assert (info.base_offset, info.last_offset, info.append_time_ms) == (2, 2, -1)
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    piece = log.read(2, 100, limit=3)
    assert piece is not None
    assert read_header(piece.read()).leader_epoch == 3
    assert log.epochs.rows() == [(0, 0), (3, 2)]


def test_offset_inside_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    piece = log.read(2, 1, limit=log.end_offset)
    assert piece is not None
    assert read_header(piece.read()).base_offset == 1
    assert log.read(2, 1, limit=log.end_offset, min_one=False) is None


def test_reads_end_on_a_batch_within_the_limit(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    for _ in range(10):
        append(log, b"x" * 100)
    size = log.size_bytes // 10
    piece = log.read(0, 3 * size + 5, limit=log.end_offset)
    assert piece is not None
    assert len(piece) == 3 * size


def test_reads_stop_below_the_limit_given(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    append(log, b"b", b"c")
    append(log, b"d")
    size = log.size_bytes
    for upto, offsets in ((0, []), (1, [0]), (2, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])):
        piece = log.read(0, size, limit=upto)
        found = [] if piece is None else [r.offset for r in read_all(log, 0, upto)]
        assert found == offsets


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    append(log, b"b")
    log.high_watermark = 2
    log.delete_records(1)
    for offset in (0, 3):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, limit=log.end_offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(2, 100, limit=2) is None


def test_every_offset_is_found_in_every_segment(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for number in range(150):
        append(log, *[b"%d" % number] * (1 + number % 3))
    assert len(log.segments) > 5
    everything = values(log)
    for wait in (True, False):
        for offset, _ in everything:
            piece = log.read(offset, 1, limit=log.end_offset, wait=wait)
            assert piece is not None
            header = read_header(piece.read())
            assert header.base_offset <= offset <= header.last_offset
    reopened = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    assert values(reopened) == everything
    for offset, _ in everything:
        piece = reopened.read(offset, 1, limit=log.end_offset, wait=False)
        assert piece is not None
        header = read_header(piece.read())
        assert header.base_offset <= offset <= header.last_offset


def test_log_append_time_restamps_the_batch(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    info = log.append(batch([b"v"], timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert info.append_time_ms == NOW_MS
    (record,) = read_all(log)
    assert record.timestamp == NOW_MS
    assert log.max_timestamp_offset() == (0, NOW_MS, 0)


def test_replicas_keep_offsets_and_epochs(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    first = batch([b"a"], base_offset=10, leader_epoch=2)
    second = batch([b"b", b"c"], base_offset=20, leader_epoch=4)
    data = memoryview(bytearray(first) + bytearray(second))
    info = log.append(data, leader_epoch=9, now_ms=NOW_MS, origin=Origin.REPLICA)
    assert (info.base_offset, info.last_offset, log.end_offset) == (10, 21, 22)
    assert log.epochs.rows() == [(2, 10), (4, 20)]
    assert values(log) == [(10, b"a"), (20, b"b"), (21, b"c")]
    piece = log.read(15, 1, limit=22)  # a gap: the next batch answers
    assert piece is not None
    assert read_header(piece.read()).base_offset == 20
    with pytest.raises(KafkaError):
        log.append(
            batch([b"x"], base_offset=21), leader_epoch=9, now_ms=NOW_MS, origin=Origin.REPLICA
        )


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_failed_write_leaves_nothing_and_the_log_goes_on(tmp_path: Path, error: int) -> None:
    fs = FaultyFileSystem()
    log = open_test_log(fs, str(tmp_path))
    append(log, b"a")
    fs.fail("append", error=error, path_has=".log")
    with pytest.raises(OSError, match=os.strerror(error)):
        append(log, b"b")
    assert values(log) == [(0, b"a")]
    assert append(log, b"c") == 1
    assert values(log) == [(0, b"a"), (1, b"c")]


def test_short_write_is_cut_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    size = log.size_bytes
    real = os.pwrite
    answers = iter([30, 0])
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[: next(answers)], at)
    )
    with pytest.raises(OSError, match="short write"):
        append(log, b"b")
    monkeypatch.undo()
    assert os.path.getsize(log.active.file.path) == size == log.size_bytes
    assert append(log, b"c") == 1
    assert values(log) == [(0, b"a"), (1, b"c")]


def test_write_in_several_pieces_is_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:20], at))
    append(log, b"a" * 100)
    append(log, b"b" * 100)
    monkeypatch.undo()
    assert values(log) == [(0, b"a" * 100), (1, b"b" * 100)]


def test_full_disk_for_an_index_does_not_fail_an_append() -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    log = open_test_log(fs, config=LogConfig(index_interval_bytes=1))
    fs.fail("append", error=errno.ENOSPC, path_has=".index", times=5)
    for sequence in range(WARM_ENTRIES_MAX + 3):
        data = batch([b"v"], producer_id=7, epoch=0, sequence=sequence)
        assert log.append(data, leader_epoch=0, now_ms=NOW_MS).base_offset == sequence
    again = batch([b"v"], producer_id=7, epoch=0, sequence=sequence)
    assert log.append(again, leader_epoch=0, now_ms=NOW_MS).duplicate
    fs.heal()
    checkpoint(log)
    assert len(values(log)) == WARM_ENTRIES_MAX + 3
    assert len(log.active.offsets.entries()) == WARM_ENTRIES_MAX + 2


def test_deleted_records_stay_deleted_however_much_is_appended() -> None:
    log = open_test_log(PowerLossFileSystem())
    for _ in range(RECENT_BATCHES_MAX):
        append(log, b"v")
    log.high_watermark = log.end_offset
    log.delete_records(-1)
    append(log, b"w")
    with pytest.raises(KafkaError) as caught:
        log.read(RECENT_BATCHES_MAX - 1, 1000, limit=log.end_offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_piece_of_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    piece = log.read(0, 1000, limit=1)
    assert piece is not None
    os.truncate(piece.file.path, len(piece) - 1)
    with pytest.raises(OSError, match="was truncated"):
        piece.read()
    log.active.file.truncate(len(piece) - 1)
    with pytest.raises(OSError, match="was truncated"):
        piece.read_nowait()


def test_compacted_log_rolls_within_the_compaction_lag() -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_ms=10_000, max_compaction_lag_ms=1_000
    )
    log = open_test_log(PowerLossFileSystem(), config=config)
    append(log, b"a", timestamp=NOW_MS)
    append(log, b"b", timestamp=NOW_MS + 1_000)
    assert len(log.segments) == 1
    append(log, b"c", timestamp=NOW_MS + 1_001)
    assert len(log.segments) == 2

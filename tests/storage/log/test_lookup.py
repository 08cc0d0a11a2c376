"""Lookups by time and by aborted transaction."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.storage.batches import (
    NOW_MS,
    append,
    append_marker,
    batch,
    checkpoint,
    flush,
    open_test_log,
    read_all,
)
from tests.storage.faulty_files import FaultyFileSystem, PowerLossFileSystem

from headrace.protocol.batch import iter_headers
from headrace.storage import Log, LogConfig, OsFileSystem


def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1500, index_interval_bytes=200)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for number in range(60):
        append(log, b"%d" % number, timestamp=NOW_MS + number * 10)
    for subject in (log, open_test_log(OsFileSystem(), str(tmp_path), config=config)):
        for number in range(60):
            for ask in (-9, 0):
                found = subject.offset_for_timestamp(NOW_MS + number * 10 + ask)
                assert found == (number, NOW_MS + number * 10, 0)
        assert subject.offset_for_timestamp(NOW_MS + 591) is None
        assert subject.max_timestamp_offset() == (59, NOW_MS + 590, 0)


def test_time_may_run_backwards(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1500, index_interval_bytes=200)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    timestamps = [NOW_MS - (number * 37) % 500 for number in range(80)]
    for timestamp in timestamps:
        append(log, b"v", timestamp=timestamp)
    for ask in range(NOW_MS - 510, NOW_MS + 10, 7):
        expected = next((o for o, t in enumerate(timestamps) if t >= ask), None)
        found = log.offset_for_timestamp(ask)
        assert (found.offset if found else None) == expected


def test_aborted_transactions_are_found_for_a_range(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"plain")

    def send(producer_id: int, sequence: int) -> int:
        data = batch(
            [b"v"], producer_id=producer_id, epoch=0, sequence=sequence, transactional=True
        )
        return log.append(data, leader_epoch=0, now_ms=NOW_MS).base_offset

    assert send(1, 0) == 1
    assert send(2, 0) == 2
    assert log.first_unstable_offset == 1
    assert append_marker(log, 1, 0, commit=False) == 3
    assert append_marker(log, 2, 0, commit=True) == 4
    log.high_watermark = 1
    assert log.first_unstable_offset == 1  # the markers are not below the high watermark yet
    log.high_watermark = 4
    assert log.first_unstable_offset == 2
    assert log.last_stable_offset == 2
    log.high_watermark = 5
    assert log.first_unstable_offset is None
    assert log.last_stable_offset == 5
    assert log.aborted_transactions(0, 5) == [(1, 1)]
    assert log.aborted_transactions(4, 5) == []
    flush(log)
    reopened = open_test_log(OsFileSystem(), str(tmp_path))
    assert reopened.aborted_transactions(0, 5) == [(1, 1)]
    assert [r.offset for r in read_all(reopened)] == [0, 1, 2]


@pytest.mark.parametrize("operation", ["append", "open"])
def test_full_disk_does_not_hide_an_aborted_transaction(operation: str) -> None:
    fs = FaultyFileSystem(PowerLossFileSystem())
    log = open_test_log(fs)
    data = batch([b"v"], producer_id=9, epoch=0, sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)
    fs.fail(operation, error=errno.ENOSPC, path_has=".txnindex")
    append_marker(log, 9, 0, commit=False)
    assert log.aborted_transactions(0, 2) == [(9, 0)]
    fs.heal()
    point = checkpoint(log)
    reopened = open_test_log(fs, clean=True, recovery_point=point)
    assert reopened.aborted_transactions(0, 2) == [(9, 0)]


def log_of_transactions(folder: Path, count: int) -> Log:
    """Transactions one after the other, every third one committed, in several segments."""
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=500)
    log = open_test_log(OsFileSystem(), str(folder), config=config)
    for number in range(count):
        data = batch(
            [b"v" * (number % 70), b"w"],
            producer_id=number % 7,
            epoch=0,
            sequence=number // 7 * 2,
            transactional=True,
        )
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        append_marker(log, number % 7, 0, commit=number % 3 == 0)
    log.high_watermark = log.end_offset
    return log


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 700, 5_000, 1 << 20])
def test_aborted_transactions_of_a_piece_are_those_that_it_may_hold(
    tmp_path: Path, max_bytes: int, reopened: bool
) -> None:
    log = log_of_transactions(tmp_path, 1500)
    assert len(log.segments) > 3
    if reopened:
        point = checkpoint(log)
        log = open_test_log(
            OsFileSystem(), str(tmp_path), config=log.config, clean=True, recovery_point=point
        )
    everything = log.aborted_transactions(0, log.end_offset)
    assert len(everything) == 1000
    for offset in range(0, log.end_offset, 41):
        piece = log.read(offset, max_bytes, limit=log.end_offset)
        assert piece is not None
        headers = [header for _, header in iter_headers(bytes(piece.read()))]
        last_offset = headers[-1].last_offset
        behind = log.offset_behind(piece)
        assert last_offset < behind
        # Two index entries lie no more than 500 bytes and a batch apart: some 15 offsets.
        assert behind <= last_offset + 16
        told = log.aborted_transactions(offset, behind)
        assert told == [row for row in everything if offset - 2 <= row[1] < behind]


def test_index_that_lies_does_not_hide_an_aborted_transaction(tmp_path: Path) -> None:
    log = log_of_transactions(tmp_path, 300)
    point = checkpoint(log)
    path = tmp_path / "00000000000000000000.index"
    original = path.read_bytes()
    config = log.config
    everything = log.aborted_transactions(0, log.end_offset)
    for byte in range(0, len(original), 3):
        damaged = bytearray(original)
        damaged[byte] ^= 1 << byte % 8
        path.write_bytes(damaged)
        log = open_test_log(
            OsFileSystem(), str(tmp_path), config=config, clean=True, recovery_point=point
        )
        for offset in (0, 100, 300):
            piece = log.read(offset, 700, limit=log.end_offset)
            assert piece is not None
            headers = [header for _, header in iter_headers(bytes(piece.read()))]
            told = log.aborted_transactions(offset, log.offset_behind(piece))
            needed = [r for r in everything if offset <= r[1] <= headers[-1].last_offset]
            assert set(needed) <= set(told)
        log.close()

"""Appending to and reading from one log."""

from __future__ import annotations

import errno
import os
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
    values,
)
from tests.storage.faulty_files import FaultyFileSystem, PowerLossFileSystem

from headrace.protocol.batch import iter_headers, read_header
from headrace.protocol.compression import Codec
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Log, LogConfig, Origin, OsFileSystem
from headrace.storage.log.appending import codec_wanted
from headrace.storage.log.segment import RECENT_BATCHES_MAX
from headrace.storage.log.sparse_index import WARM_ENTRIES_MAX


def refused(log, data: memoryview, now_ms: int = NOW_MS) -> ErrorCode:  # type: ignore[no-untyped-def]
    end_offset, size = log.end_offset, log.size_bytes
    with pytest.raises(KafkaError) as caught:
        log.append(data, leader_epoch=0, now_ms=now_ms)
    assert (log.end_offset, log.size_bytes) == (end_offset, size)
    return caught.value.code


def test_batches_get_consecutive_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    assert append(log, b"a", b"b") == 0
    info = log.append(batch([b"c"]), leader_epoch=3, now_ms=NOW_MS)
    assert (info.base_offset, info.last_offset, info.append_time_ms) == (2, 2, -1)
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    piece = log.read(2, 100, upto=3)
    assert piece is not None
    assert read_header(piece.read()).leader_epoch == 3
    assert log.epochs.rows() == [(0, 0), (3, 2)]


def test_offset_inside_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    piece = log.read(2, 1, upto=log.end_offset)
    assert piece is not None
    assert read_header(piece.read()).base_offset == 1
    assert log.read(2, 1, upto=log.end_offset, min_one=False) is None


def test_reads_end_on_a_batch_within_the_limit(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    for _ in range(10):
        append(log, b"x" * 100)
    size = log.size_bytes // 10
    piece = log.read(0, 3 * size + 5, upto=log.end_offset)
    assert piece is not None
    assert len(piece) == 3 * size


def test_reads_stop_below_the_limit_given(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    append(log, b"b", b"c")
    append(log, b"d")
    size = log.size_bytes
    for upto, offsets in ((0, []), (1, [0]), (2, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])):
        piece = log.read(0, size, upto=upto)
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
            log.read(offset, 100, upto=log.end_offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(2, 100, upto=2) is None


def test_every_offset_is_found_in_every_segment(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for number in range(150):
        append(log, *[b"%d" % number] * (1 + number % 3))
    assert len(log.segments) > 5
    everything = values(log)
    for wait in (True, False):
        for offset, _ in everything:
            piece = log.read(offset, 1, upto=log.end_offset, wait=wait)
            assert piece is not None
            header = read_header(piece.read())
            assert header.base_offset <= offset <= header.last_offset
    reopened = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    assert values(reopened) == everything
    for offset, _ in everything:
        piece = reopened.read(offset, 1, upto=log.end_offset, wait=False)
        assert piece is not None
        header = read_header(piece.read())
        assert header.base_offset <= offset <= header.last_offset


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda b: b[:0], ErrorCode.INVALID_RECORD),
        (lambda b: b[:40], ErrorCode.INVALID_RECORD),
        (lambda b: b[:-1], ErrorCode.INVALID_RECORD),
        (lambda b: _flip(b, 70), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: _flip(b, 16), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: memoryview(bytearray(b) * 2), ErrorCode.INVALID_RECORD),
        (lambda b: _flip(b, 7), ErrorCode.INVALID_RECORD),
    ],
)
def test_damaged_batches_are_refused(tmp_path: Path, damage, code: ErrorCode) -> None:  # type: ignore[no-untyped-def]
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"before")
    assert refused(log, damage(batch([b"value"]))) == code
    append(log, b"after")
    assert values(log) == [(0, b"before"), (1, b"after")]


def _flip(data: memoryview, byte: int) -> memoryview:
    data[byte] ^= 1
    return data


def test_control_batches_of_clients_are_refused(tmp_path: Path) -> None:
    from tests.storage.batches import marker

    log = open_test_log(OsFileSystem(), str(tmp_path))
    assert refused(log, marker(1, 0, commit=True)) == ErrorCode.INVALID_RECORD


def test_too_large_batches_are_refused(tmp_path: Path) -> None:
    log = open_test_log(
        OsFileSystem(), str(tmp_path), config=LogConfig(max_message_bytes=200, segment_bytes=1000)
    )
    assert refused(log, batch([b"x" * 200])) == ErrorCode.MESSAGE_TOO_LARGE
    log.config = LogConfig(max_message_bytes=2000, segment_bytes=1000)
    assert refused(log, batch([b"x" * 1500])) == ErrorCode.RECORD_LIST_TOO_LARGE
    append(log, b"x" * 500)


def test_keyless_records_are_refused_by_compacted_topics_only(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    log.append(batch([b"v"], key=None), leader_epoch=0, now_ms=NOW_MS)
    log.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    for codec in range(5):
        assert refused(log, batch([b"v"], key=None, codec=codec)) == ErrorCode.INVALID_RECORD
        log.append(batch([b"v"], codec=codec), leader_epoch=0, now_ms=NOW_MS)


def test_create_time_too_far_from_now_is_refused(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=2000)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for timestamp in (NOW_MS - 1001, NOW_MS + 2001):
        assert refused(log, batch([b"v"], timestamp=timestamp)) == ErrorCode.INVALID_TIMESTAMP
    append(log, b"a", timestamp=NOW_MS - 1000)
    append(log, b"b", timestamp=NOW_MS + 2000)


def test_log_append_time_restamps_the_batch(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    info = log.append(batch([b"v"], timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert info.append_time_ms == NOW_MS
    (record,) = read_all(log)
    assert record.timestamp == NOW_MS
    assert log.max_timestamp_offset() == (0, NOW_MS, 0)


def test_recompression_is_asked_for_only_when_codecs_differ() -> None:
    gzipped = read_header(batch([b"v"], codec=1))
    assert codec_wanted(gzipped, LogConfig(compression_type="producer")) is None
    assert codec_wanted(gzipped, LogConfig(compression_type="gzip")) is None
    assert codec_wanted(gzipped, LogConfig(compression_type="zstd")) == Codec.ZSTD
    assert codec_wanted(gzipped, LogConfig(compression_type="uncompressed")) == Codec.NONE


def test_replicas_keep_offsets_and_epochs(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    first = batch([b"a"], base_offset=10, leader_epoch=2)
    second = batch([b"b", b"c"], base_offset=20, leader_epoch=4)
    data = memoryview(bytearray(first) + bytearray(second))
    info = log.append(data, leader_epoch=9, now_ms=NOW_MS, origin=Origin.REPLICA)
    assert (info.base_offset, info.last_offset, log.end_offset) == (10, 21, 22)
    assert log.epochs.rows() == [(2, 10), (4, 20)]
    assert values(log) == [(10, b"a"), (20, b"b"), (21, b"c")]
    piece = log.read(15, 1, upto=22)  # a gap: the next batch answers
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


def test_deleted_records_stay_deleted_however_much_is_appended() -> None:
    log = open_test_log(PowerLossFileSystem())
    for _ in range(RECENT_BATCHES_MAX):
        append(log, b"v")
    log.high_watermark = log.end_offset
    log.delete_records(-1)
    append(log, b"w")
    with pytest.raises(KafkaError) as caught:
        log.read(RECENT_BATCHES_MAX - 1, 1000, upto=log.end_offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_piece_of_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"a")
    piece = log.read(0, 1000, upto=1)
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
        piece = log.read(offset, max_bytes, upto=log.end_offset)
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
            piece = log.read(offset, 700, upto=log.end_offset)
            assert piece is not None
            headers = [header for _, header in iter_headers(bytes(piece.read()))]
            told = log.aborted_transactions(offset, log.offset_behind(piece))
            needed = [r for r in everything if offset <= r[1] <= headers[-1].last_offset]
            assert set(needed) <= set(told)
        log.close()

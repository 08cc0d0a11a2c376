"""Retention, DeleteRecords and truncation."""

from __future__ import annotations

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
    values,
)

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Log, LogConfig, OsFileSystem
from headrace.storage.log import retention
from headrace.storage.log.trimming import delete_oldest

DAY_MS = 86_400_000
SIZE = len(batch([b"x" * 100]))


def fill(folder: Path, segments: int, config: LogConfig) -> Log:
    """Segments of two batches each, a day apart."""
    log = open_test_log(OsFileSystem(), str(folder), config=config)
    for number in range(segments * 2):
        timestamp = NOW_MS - (segments - number // 2) * DAY_MS
        append(log, b"x" * 100, timestamp=timestamp)
        flush(log)
    log.high_watermark = log.end_offset
    checkpoint(log)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_older_than_retention_ms_go(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=3 * DAY_MS)
    log = fill(tmp_path, 6, config)
    assert retention.apply(log, NOW_MS) == 3
    assert bases(log) == [6, 8, 10]
    assert log.start_offset == 6
    assert retention.apply(log, NOW_MS) == 0
    assert [offset for offset, _ in values(log)] == list(range(6, 12))


def test_all_segments_may_go_and_the_log_stays_where_it_was(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=1000)
    log = fill(tmp_path, 3, config)
    assert retention.apply(log, NOW_MS) == 3
    assert (bases(log), log.start_offset, log.end_offset) == ([6], 6, 6)
    assert append(log, b"next") == 6
    assert retention.apply(log, NOW_MS) == 0


def test_segments_beyond_retention_bytes_go(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=-1, retention_bytes=5 * SIZE)
    log = fill(tmp_path, 6, config)
    assert retention.apply(log, NOW_MS) == 3
    assert log.size_bytes == 6 * SIZE  # one less would fall below the limit


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=1000)
    log = fill(tmp_path, 6, config)
    log.high_watermark = 5
    assert retention.apply(log, NOW_MS) == 2
    assert bases(log)[0] == 4


def test_nothing_above_the_recovery_point_goes(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2 * SIZE, retention_ms=1000)
    log = fill(tmp_path, 6, config)
    log.recovery_point = 5
    assert retention.apply(log, NOW_MS) == 2
    log.delete_records(12)
    assert retention.apply(log, NOW_MS) == 0
    checkpoint(log)
    assert retention.apply(log, NOW_MS) == 4


def test_compacted_logs_keep_old_segments(tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes=2 * SIZE, retention_ms=1000, cleanup_policy=frozenset({"compact"})
    )
    log = fill(tmp_path, 3, config)
    assert retention.apply(log, NOW_MS) == 0
    log.delete_records(3)
    assert retention.apply(log, NOW_MS) == 1
    log.config = LogConfig(
        segment_bytes=2 * SIZE, retention_ms=1000, cleanup_policy=frozenset({"compact", "delete"})
    )
    assert retention.apply(log, NOW_MS) == 2


def test_deleted_records_are_gone_at_once_and_their_segments_later(tmp_path: Path) -> None:
    log = fill(tmp_path, 4, LogConfig(segment_bytes=2 * SIZE, retention_ms=-1))
    assert log.delete_records(5) == 5
    assert log.delete_records(3) == 5
    with pytest.raises(KafkaError) as caught:
        log.read(4, 1000, limit=log.end_offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bases(log) == [0, 2, 4, 6]
    assert retention.apply(log, NOW_MS) == 2
    assert (bases(log), log.start_offset) == ([4, 6], 5)
    assert log.delete_records(-1) == 8
    for wrong in (-2, 9):
        with pytest.raises(KafkaError) as caught:
            log.delete_records(wrong)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_readers_finish_with_a_deleted_segment(tmp_path: Path) -> None:
    log = fill(tmp_path, 4, LogConfig(segment_bytes=2 * SIZE, retention_ms=-1))
    piece = log.read(0, 1 << 20, limit=log.end_offset)
    assert piece is not None
    data = piece.read()
    delete_oldest(log, 2, NOW_MS)
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".log.deleted")) == [
        f"{base:020d}.log.deleted" for base in (0, 2)
    ]
    assert piece.read() == data
    assert log.deleted_segments.take(NOW_MS + log.config.file_delete_delay_ms - 1) == []
    for segment in log.deleted_segments.take(NOW_MS + log.config.file_delete_delay_ms):
        segment.remove(log.fs)
    assert not [name for name in os.listdir(tmp_path) if "deleted" in name]


def test_snapshots_of_deleted_segments_go_with_them(tmp_path: Path) -> None:
    log = fill(tmp_path, 4, LogConfig(segment_bytes=2 * SIZE, retention_ms=-1))
    delete_oldest(log, 2, NOW_MS)
    left = sorted(path.name for path in tmp_path.glob("*.snapshot"))
    assert left == [f"{base:020d}.snapshot" for base in (4, 6, 8)]


@pytest.mark.parametrize("offset", range(13))
def test_truncation_drops_batches_that_reach_the_offset(tmp_path: Path, offset: int) -> None:
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    starts = [append(log, b"%d" % number * 50, b"second") for number in range(6)]
    everything = values(log)
    flush(log)
    log.high_watermark = log.end_offset
    log.truncate_to(offset, NOW_MS)
    end = offset if offset in (*starts, 12) else offset - 1
    for subject in (log, open_test_log(OsFileSystem(), str(tmp_path), config=config)):
        assert subject.end_offset == subject.synced_offset == end
        assert subject.high_watermark == end
        assert values(subject) == everything[:end]
        append(subject, b"new")
        assert values(subject)[-1] == (end, b"new")
        subject.truncate_to(end, NOW_MS)


def test_truncation_forgets_what_producers_and_epochs_did_after(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    for number, epoch in enumerate((0, 0, 1, 2)):
        data = batch([b"v"], producer_id=7, epoch=0, sequence=number, transactional=True)
        log.append(data, leader_epoch=epoch, now_ms=NOW_MS)
    append_marker(log, 7, 0, commit=False)
    log.truncate_to(2, NOW_MS)
    assert log.epochs.rows() == [(0, 0)]
    producer = log.producers.get(7)
    assert producer is not None
    assert producer.next_sequence == 2
    assert log.first_unstable_offset == 0
    assert log.aborted_transactions(0, 9) == []


def test_truncation_below_the_first_segment_begins_again(tmp_path: Path) -> None:
    log = fill(tmp_path, 4, LogConfig(segment_bytes=2 * SIZE, retention_ms=-1))
    checkpoint(log)
    delete_oldest(log, 2, NOW_MS)
    log.truncate_to(1, NOW_MS)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1, 1, 0)
    assert append(log, b"v") == 1

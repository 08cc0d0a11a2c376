"""Opening a log: after a clean stop, after a kill, with damaged files beside it."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from tests.storage.batches import (
    NOW_MS,
    append,
    append_marker,
    batch,
    checkpoint,
    open_test_log,
    read_all,
    values,
)
from tests.storage.recovery.crashed_logs import (
    CONFIG,
    FIRST,
    fill,
    index_entries,
    reopen,
)

from headrace.protocol.batch import HEADER_BYTES
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.records import Record
from headrace.storage import Log, LogConfig, Origin, OsFileSystem
from headrace.storage.log.scan import iter_headers


def test_everything_written_is_there_after_a_kill(tmp_path: Path) -> None:
    log = fill(tmp_path, 60)
    log.active.seal()
    recovered = reopen(tmp_path)
    assert len(recovered.segments) > 1
    assert values(recovered) == values(log)
    assert index_entries(recovered) == index_entries(log)
    assert recovered.epochs.rows() == log.epochs.rows()
    assert recovered.synced_offset == recovered.end_offset == log.end_offset


def test_torn_tail_is_cut_at_every_byte_of_the_last_three_batches(tmp_path: Path) -> None:
    original = tmp_path / "original"
    log = fill(original, 8)
    path = original / (FIRST + ".log")
    data = path.read_bytes()
    ends = [position + h.size for position, h in iter_headers(log.active.file, 0, len(data))]
    everything = values(log)
    counts = [h.next_offset for _, h in iter_headers(log.active.file, 0, len(data))]
    for size in range(ends[-4], len(data) + 1):
        torn = tmp_path / "torn"
        torn.mkdir()
        (torn / path.name).write_bytes(data[:size])
        recovered = reopen(torn)
        whole = [count for end, count in zip(ends, counts, strict=True) if end <= size]
        assert values(recovered) == everything[: whole[-1]]
        assert append(recovered, b"next") == whole[-1]
        assert values(reopen(torn))[-1] == (whole[-1], b"next")
        shutil.rmtree(torn)


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 500, b"\xff" * 70, random.Random(1).randbytes(999)],
    ids=["zeros", "ones", "noise"],
)
def test_garbage_behind_the_last_batch_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = fill(tmp_path)
    everything = values(log)
    with (tmp_path / (FIRST + ".log")).open("ab") as file:
        file.write(tail)
    recovered = reopen(tmp_path)
    assert values(recovered) == everything
    assert recovered.size_bytes == log.size_bytes


def test_hole_in_the_middle_ends_the_log_there(tmp_path: Path) -> None:
    log = fill(tmp_path, 60)
    everything = values(log)
    path = tmp_path / os.path.basename(log.segments[1].file.path)
    headers = list(iter_headers(log.segments[1].file, 0, log.segments[1].size))
    position, header = headers[len(headers) // 2]
    data = bytearray(path.read_bytes())
    data[position : position + header.size] = bytes(header.size)
    path.write_bytes(data)
    recovered = reopen(tmp_path)
    assert recovered.end_offset == header.base_offset
    assert values(recovered) == everything[: header.base_offset]
    assert len(recovered.segments) == 2


def test_missing_tail_of_an_older_segment_ends_the_log_there(tmp_path: Path) -> None:
    log = fill(tmp_path, 60)
    everything = values(log)
    first = log.segments[0]
    *_, (position, header) = iter_headers(first.file, 0, first.size)
    os.truncate(first.file.path, position)  # at a batch boundary: only the gap tells
    recovered = reopen(tmp_path)
    assert values(recovered) == everything[: header.base_offset]
    assert len(recovered.segments) == 1


def test_recovery_reads_only_from_the_recovery_point_on(tmp_path: Path) -> None:
    log = fill(tmp_path, 8)
    point = checkpoint(log)
    append(log, b"after")
    everything = values(log)
    # Damage below the recovery point would be found by a scan, and cut; it must be left alone.
    path = tmp_path / (FIRST + ".log")
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 3] ^= 1
    path.write_bytes(data)
    recovered = reopen(tmp_path, recovery_point=point)
    assert recovered.end_offset == log.end_offset
    assert values(recovered, 1) == everything[1:]
    with pytest.raises(KafkaError) as caught:
        recovered.read(0, 1000, limit=recovered.end_offset)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("epochs", "byte"),
    [
        *(("kept", byte) for byte in range(17)),
        # Of a wrong leader epoch only the epochs tell.
        *(("lost", byte) for byte in (*range(12), 16)),
    ],
)
def test_damage_below_the_recovery_point_is_reported_never_cut(
    tmp_path: Path, clean: bool, epochs: str, byte: int
) -> None:
    log = fill(tmp_path, 8)
    point = checkpoint(log)
    everything = values(log)
    *_, (position, header) = iter_headers(log.active.file, 0, log.active.size)
    path = tmp_path / (FIRST + ".log")
    data = bytearray(path.read_bytes())
    data[position + byte] ^= 0x10
    path.write_bytes(data)
    if epochs == "lost":
        (tmp_path / "leader-epoch-checkpoint").write_bytes(b"?")
    recovered = reopen(tmp_path, clean=clean, recovery_point=point)
    assert path.read_bytes() == data
    assert recovered.end_offset == point
    assert append(recovered, b"next") == point
    with pytest.raises(KafkaError) as caught:
        recovered.read(header.base_offset, 1000, limit=recovered.end_offset)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    readable = read_all(recovered, 0, header.base_offset - 3)
    assert [(r.offset, r.value) for r in readable] == everything[: len(readable)]
    assert values(recovered, point) == [(point, b"next")]


def test_every_flipped_bit_of_a_batch_is_found_when_it_is_read(tmp_path: Path) -> None:
    log = fill(tmp_path / "original", 6)
    point = checkpoint(log)
    good = {record.offset: record for record in read_all(log)}
    original = (tmp_path / "original" / (FIRST + ".log")).read_bytes()
    (position, header) = list(iter_headers(log.active.file, 0, len(original)))[3]
    path = tmp_path / "original" / (FIRST + ".log")
    for byte in range(position, position + header.size):
        for bit in range(8):
            data = bytearray(original)
            data[byte] ^= 1 << bit
            path.write_bytes(data)
            damaged = reopen(tmp_path / "original", clean=True, recovery_point=point)
            with pytest.raises(KafkaError) as caught:
                damaged.read(header.base_offset, 1 << 20, limit=point)
            assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
            for offset in good:
                _right_or_corrupt(damaged, offset, point, good)


def _right_or_corrupt(log: Log, offset: int, upto: int, good: dict[int, Record]) -> None:
    found: list[Record] = []
    code = ErrorCode.CORRUPT_MESSAGE
    try:
        found = read_all(log, offset, upto)
    except KafkaError as error:
        code = error.code
    assert code == ErrorCode.CORRUPT_MESSAGE
    assert all(good[record.offset] == record for record in found)


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    log = fill(tmp_path)
    everything = values(log)
    for name in (
        "00000000000000000099.index",
        "00000000000000000003.log.cleaned",
        "00000000000000000003.index.cleaned",
        "00000000000000000000.log.deleted",
        "00000000000000000007.snapshot.tmp",
    ):
        (tmp_path / name).write_bytes(b"left over")
    assert values(reopen(tmp_path)) == everything
    assert not [name for name in os.listdir(tmp_path) if "cleaned" in name or "deleted" in name]
    assert not (tmp_path / "00000000000000000099.index").exists()


def test_clean_opening_reads_no_batches_but_the_last(tmp_path: Path) -> None:
    log = fill(tmp_path, 8)
    point = checkpoint(log)
    path = tmp_path / (FIRST + ".log")
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 3] ^= 1
    path.write_bytes(data)
    opened = reopen(tmp_path, clean=True, recovery_point=point)
    assert opened.end_offset == point


@pytest.mark.parametrize("content", [b"", b"0\n1\n5 0\n0 0\n", b"0\n9\n0 0\n", b"\xff\xfe"])
def test_unreadable_epochs_are_read_from_the_log_again(tmp_path: Path, content: bytes) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for epoch in (0, 0, 2, 5):
        log.append(batch([b"v"]), leader_epoch=epoch, now_ms=NOW_MS)
    point = checkpoint(log)
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)
    opened = reopen(tmp_path, clean=True, recovery_point=point)
    assert opened.epochs.rows() == [(0, 0), (2, 2), (5, 3)]


@pytest.mark.parametrize("snapshots", ["kept", "lost", "damaged"])
@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_known_again(tmp_path: Path, snapshots: str, clean: bool) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for sequence in range(40):
        data = batch([b"v" * 50], producer_id=7, epoch=1, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    log.append(
        batch([b"t"], producer_id=8, epoch=0, sequence=0, transactional=True),
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    point = checkpoint(log)
    assert len(log.segments) > 1
    for path in tmp_path.glob("*.snapshot"):
        if snapshots == "lost":
            path.unlink()
        elif snapshots == "damaged":
            data2 = bytearray(path.read_bytes())
            data2[-1] ^= 4
            path.write_bytes(data2)
    opened = reopen(tmp_path, clean=clean, recovery_point=point)
    assert opened.first_unstable_offset == 40
    for sequence in (35, 39):
        again = batch([b"v"], producer_id=7, epoch=1, sequence=sequence)
        info = opened.append(again, leader_epoch=0, now_ms=NOW_MS)
        assert (info.duplicate, info.base_offset) == (True, sequence)
    with pytest.raises(KafkaError) as caught:
        opened.append(
            batch([b"v"], producer_id=7, epoch=1, sequence=34), leader_epoch=0, now_ms=NOW_MS
        )
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append_marker(opened, 8, 0, commit=True)
    opened.high_watermark = opened.end_offset
    assert opened.first_unstable_offset is None


def test_log_whose_start_lies_behind_its_end_begins_again(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    opened = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG, start_offset=100)
    assert (opened.start_offset, opened.end_offset, opened.size_bytes) == (100, 100, 0)
    assert append(opened, b"v") == 100


def test_gap_that_compaction_left_at_the_recovery_point_is_no_damage(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for base_offset in (0, 1, 5, 6):
        data = batch([b"v"], base_offset=base_offset, leader_epoch=0)
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICA)
    log.close()
    reopened = open_test_log(OsFileSystem(), str(tmp_path), config=config, recovery_point=3)
    assert [offset for offset, _ in values(reopened)] == [0, 1, 5, 6]
    assert reopened.end_offset == 7


def test_torn_append_behind_the_recovery_point_costs_no_full_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = LogConfig(index_interval_bytes=200)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for _ in range(20):
        append(log, b"v" * 100)
    point = checkpoint(log)
    append(log, b"torn" * 100)
    log.close()
    path = log.active.file.path
    os.truncate(path, os.path.getsize(path) - 10)
    reopened = open_test_log(OsFileSystem(), str(tmp_path), config=config, recovery_point=point)
    assert reopened.end_offset == point
    assert "bytes after offset 20 are cut" in caplog.text
    assert "checked from its start" not in caplog.text
    assert append(reopened, b"next") == point
    assert len(values(reopened)) == 21

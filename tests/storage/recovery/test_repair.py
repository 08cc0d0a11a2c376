"""Damaged indexes: found, harmless, and rebuilt."""

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
    open_test_log,
    values,
)
from tests.storage.recovery.crashed_logs import (
    CONFIG,
    DAMAGES,
    FIRST,
    fill,
    reopen,
)

from headrace.storage import OsFileSystem


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_flipped_bit_of_an_index_is_harmless(tmp_path: Path, suffix: str) -> None:
    log = fill(tmp_path, 30)
    point = checkpoint(log)
    everything = values(log)
    by_time = [log.offset_for_timestamp(NOW_MS + number) for number in range(30)]
    path = tmp_path / (FIRST + suffix)
    original = path.read_bytes()
    assert original
    for byte in range(len(original)):
        data = bytearray(original)
        data[byte] ^= 1 << (byte % 8)
        path.write_bytes(data)
        damaged = reopen(tmp_path, clean=True, recovery_point=point)
        for offset in range(point):
            assert values(damaged, offset)[0] == everything[offset]
        for number in range(30):
            assert damaged.offset_for_timestamp(NOW_MS + number) == by_time[number]
        damaged.close()
        path.write_bytes(original)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index_files_are_built_again(
    tmp_path: Path, damage: str, suffix: str, clean: bool
) -> None:
    log = fill(tmp_path, 60)
    point = checkpoint(log)
    everything = values(log)
    for segment in log.segments:
        DAMAGES[damage](tmp_path / os.path.basename(segment.file.path).replace(".log", suffix))
    recovered = reopen(tmp_path, clean=clean, recovery_point=point if clean else 0)
    for offset in range(point):
        assert values(recovered, offset)[0] == everything[offset]
    for number in range(60):
        found = recovered.offset_for_timestamp(NOW_MS + number)
        assert found == log.offset_for_timestamp(NOW_MS + number)
    for _ in range(60):
        append(recovered, b"more")
    assert values(recovered)[: len(everything)] == everything


@pytest.mark.parametrize("snapshots", ["kept", "lost"])
def test_every_flipped_bit_of_a_transaction_index_is_harmless(
    tmp_path: Path, snapshots: str
) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for number in range(6):
        producer_id = 100 + number % 2
        data = batch(
            [b"v" * 300],
            producer_id=producer_id,
            epoch=0,
            sequence=number // 2,
            transactional=True,
        )
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        if number > 2:
            append_marker(log, producer_id, 0, commit=number == 4)
    point = checkpoint(log)
    expected = log.aborted_transactions(0, point)
    assert len(expected) == 2
    (path,) = tmp_path.glob("*.txnindex")
    if snapshots == "lost":
        for snapshot in tmp_path.glob("*.snapshot"):
            snapshot.unlink()
    original = path.read_bytes()
    for byte in range(len(original)):
        for bit in range(8):
            data2 = bytearray(original)
            data2[byte] ^= 1 << bit
            path.write_bytes(data2)
            damaged = reopen(tmp_path, clean=True, recovery_point=point)
            assert damaged.aborted_transactions(0, point) == expected
            damaged.close()


@pytest.mark.parametrize("kept", [b"", bytes.fromhex("0000 0000000000000009 0000000000000000")])
def test_entry_of_a_transaction_index_that_a_crash_made_up_is_never_vouched_for(
    tmp_path: Path, kept: bytes
) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for sequence in range(3):
        data = batch([b"v"], producer_id=9, epoch=0, sequence=sequence, transactional=True)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    point = checkpoint(log)
    append_marker(log, 9, 0, commit=False)
    log.close()
    if kept:
        kept += (3).to_bytes(8, "big") + (4).to_bytes(8, "big")
    # A write that was lost, and perhaps one behind it that was not.
    (tmp_path / (FIRST + ".txnindex")).write_bytes(bytes(34) + kept)
    recovered = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG, recovery_point=point)
    point = checkpoint(recovered)
    recovered.close()
    again = reopen(tmp_path, clean=True, recovery_point=point)
    assert again.aborted_transactions(0, again.end_offset) == [(9, 0)]

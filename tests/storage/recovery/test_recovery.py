"""Opening a log after a crash, or with damage on disk."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
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

from headrace.protocol.batch import HEADER_BYTES
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.records import Record
from headrace.storage import Log, LogConfig, Origin, OsFileSystem, names
from headrace.storage.log.scan import iter_headers
from headrace.storage.recovery.recovery import Opening, open_log

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200)
FIRST = "00000000000000000000"


def fill(folder: Path, batches: int = 12, config: LogConfig = CONFIG) -> Log:
    log = open_test_log(OsFileSystem(), str(folder), config=config)
    for number in range(batches):
        append(log, *[b"value %d" % number] * (1 + number % 3), timestamp=NOW_MS + number)
    return log


def reopen(folder: Path, *, clean: bool = False, recovery_point: int = 0) -> Log:
    return open_test_log(
        OsFileSystem(), str(folder), config=CONFIG, clean=clean, recovery_point=recovery_point
    )


def index_entries(log: Log) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    return [(segment.offsets.entries(), segment.times.entries()) for segment in log.segments]


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
        recovered.read(0, 1000, upto=recovered.end_offset)
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
        recovered.read(header.base_offset, 1000, upto=recovered.end_offset)
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
                damaged.read(header.base_offset, 1 << 20, upto=point)
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


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "zeros": lambda path: path.write_bytes(path.read_bytes() + bytes(8 * 12)),
    "garbage": lambda path: path.write_bytes(random.Random(5).randbytes(8 * 12)),
}


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


FLIPS = {
    "base offset": 7,
    "length": 10,
    "magic": 16,
    "crc": 18,
    "last offset delta": 26,
    "records": HEADER_BYTES + 2,
}


def after_crash(folder: Path, *, same_boot: bool, recovery_point: int = 0) -> Log:
    opening = Opening(
        topic="t",
        partition=0,
        config=CONFIG,
        now_ms=NOW_MS,
        recovery_point=recovery_point,
        same_boot=same_boot,
        rng=random.Random(1),
    )
    return open_log(OsFileSystem(), str(folder), opening)


def flip(log: Log, segment: int, number: int, byte: int) -> tuple[int, int]:
    """Flip a bit in a batch of a segment; the batch's first offset and the one after it."""
    file = log.segments[segment].file
    position, header = list(iter_headers(file, 0, file.size))[number]
    data = bytearray(Path(file.path).read_bytes())
    data[position + byte] ^= 0x10
    Path(file.path).write_bytes(data)
    return header.base_offset, header.next_offset


def readable(log: Log) -> tuple[dict[int, bytes | None], set[int]]:
    """What each offset holds, and the offsets that answer CORRUPT_MESSAGE."""
    found: dict[int, bytes | None] = {}
    corrupt = set()
    for offset in range(log.start_offset, log.end_offset):
        try:
            records = read_all(log, offset, offset + 3)
        except KafkaError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                raise
            corrupt.add(offset)
        else:
            found |= {record.offset: record.value for record in records if record.offset == offset}
    return found, corrupt


@pytest.mark.parametrize("field", FLIPS)
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_flipped_bit_is_left_in_place_while_the_machine_runs_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, segment: int
) -> None:
    log = fill(tmp_path, 70)
    everything = dict(values(log))
    first, after = flip(log, segment, 2, FLIPS[field])
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    recovered = after_crash(tmp_path, same_boot=True)
    assert recovered.end_offset == log.end_offset
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.log")} == {
        **{names.offset_name(s.base_offset, ".log"): b"" for s in recovered.segments},
        **before,
    }
    assert "not by a torn end" in caplog.text
    assert "headrace log verify" in caplog.text
    found, corrupt = readable(recovered)
    assert corrupt >= set(range(first, after))
    assert found.items() <= everything.items()
    # Nothing is out of reach but the damaged batch and, at most, its neighbours.
    assert len(found) >= len(everything) - 9
    assert append(recovered, b"next") == log.end_offset
    again = after_crash(tmp_path, same_boot=True)
    assert dict(values(again, log.end_offset)) == {log.end_offset: b"next"}


@pytest.mark.parametrize("field", FLIPS)
def test_flipped_bit_after_a_power_loss_is_cut_with_a_copy_of_what_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    log = fill(tmp_path, 70)
    assert len(log.segments) > 2
    everything = values(log)
    first, _ = flip(log, 1, 3, FLIPS[field])
    damaged = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    cut, *dropped = sorted(damaged)[1:]
    recovered = after_crash(tmp_path, same_boot=False)
    assert values(recovered) == everything[:first]
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.corrupt")}
    copy = names.offset_name(first, ".log.corrupt")
    assert kept.pop(copy) + (tmp_path / cut).read_bytes() == (
        damaged[cut][recovered.segments[-1].size :] + damaged[cut][: recovered.segments[-1].size]
    )
    assert kept == {f"{name}.corrupt": damaged[name] for name in dropped}
    assert "more than a torn end" in caplog.text
    assert str(tmp_path / copy) in caplog.text
    assert append(recovered, b"next") == first
    # The copies stay: neither the next recovery nor another cut touches them.
    flip(after_crash(tmp_path, same_boot=False), -1, 0, FLIPS["crc"])
    assert {path.name for path in tmp_path.glob("*.corrupt")} >= {copy, *kept}


def test_producers_behind_a_flipped_bit_are_known(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for sequence in range(12):
        data = batch([b"v"], producer_id=7, epoch=0, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    flip(log, 0, 4, FLIPS["length"])
    recovered = after_crash(tmp_path, same_boot=True)
    producer = recovered.producers.get(7)
    assert producer is not None
    assert producer.next_sequence == 12


def test_torn_append_of_a_killed_process_is_cut_without_a_copy(tmp_path: Path) -> None:
    log = fill(tmp_path, 8)
    size = log.size_bytes
    position = append(log, b"torn" * 100)
    os.truncate(log.active.file.path, size + 80)
    recovered = after_crash(tmp_path, same_boot=True)
    assert recovered.end_offset == position
    assert not list(tmp_path.glob("*.corrupt"))


def test_last_batch_that_was_whole_and_is_damaged_is_cut_with_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(tmp_path, 8)
    first, _ = flip(log, 0, 7, FLIPS["records"])
    recovered = after_crash(tmp_path, same_boot=True)
    assert recovered.end_offset == first
    assert (tmp_path / names.offset_name(first, ".log.corrupt")).exists()
    assert "more than a torn end" in caplog.text


def test_batches_behind_damage_below_the_recovery_point_are_not_lost(tmp_path: Path) -> None:
    log = fill(tmp_path, 8)
    point = checkpoint(log)
    for number in range(60):
        append(log, b"after %d" % number)
    everything = dict(values(log))
    first, after = flip(log, 0, 7, FLIPS["length"])
    (tmp_path / (FIRST + ".index")).unlink()  # so that the damage is met at all
    recovered = after_crash(tmp_path, same_boot=False, recovery_point=point)
    assert recovered.end_offset == log.end_offset
    found, corrupt = readable(recovered)
    assert corrupt >= set(range(first, after))
    assert {offset: everything[offset] for offset in range(point, log.end_offset)}.items() <= (
        found.items()
    )
    assert not list(tmp_path.glob("*.corrupt"))


def test_hole_that_a_power_loss_left_between_segments_is_no_part_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(tmp_path, 60)
    everything = dict(values(log))
    first = log.segments[0]
    *_, (position, header) = iter_headers(first.file, 0, first.size)
    os.truncate(first.file.path, position)
    recovered = after_crash(tmp_path, same_boot=True)  # a machine that runs on loses no tail
    assert recovered.end_offset == log.end_offset
    assert dict(values(recovered, header.next_offset)).items() <= everything.items()
    assert f"nothing is between {header.base_offset}" in caplog.text
    recovered = after_crash(tmp_path, same_boot=False)
    assert recovered.end_offset == header.base_offset
    assert len(list(tmp_path.glob("*.corrupt"))) >= 1


def embedded(offset: int, count: int = 3) -> bytes:
    """A value that holds batches, as a copy of a log does."""
    return b"".join(
        bytes(batch([b"inner"], base_offset=offset + n, leader_epoch=0)) for n in range(count)
    )


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("kept_bytes", [HEADER_BYTES + 5, 300, 500])
def test_batches_within_a_torn_batch_are_no_part_of_the_log(
    tmp_path: Path, same_boot: bool, kept_bytes: int
) -> None:
    log = fill(tmp_path, 4)
    everything, size = values(log), log.size_bytes
    append(log, b"x" * 100 + embedded(log.end_offset, 10))
    os.truncate(log.active.file.path, size + kept_bytes)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    assert values(recovered) == everything
    assert not list(tmp_path.glob("*.corrupt"))


@pytest.mark.parametrize("same_boot", [True, False])
def test_batches_within_a_damaged_batch_are_no_part_of_the_log(
    tmp_path: Path, same_boot: bool
) -> None:
    log = fill(tmp_path, 4)
    everything = values(log)
    first = append(log, b"x" * 100 + embedded(log.end_offset))
    append(log, b"behind")
    flip(log, 0, 4, HEADER_BYTES + 20)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    found, corrupt = readable(recovered)
    if same_boot:
        assert found.items() <= {**dict(everything), first + 1: b"behind"}.items()
        assert found[first + 1] == b"behind"
        assert first in corrupt
    else:
        assert (found, corrupt) == (dict(everything), set())


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("value", [b"v" * 500, embedded(7)], ids=["plain", "batches"])
def test_batch_whose_head_never_reached_the_disk_is_cut(
    tmp_path: Path, same_boot: bool, value: bytes
) -> None:
    log = fill(tmp_path, 4)
    everything = values(log)
    headless = bytes(HEADER_BYTES) + bytes(batch([value]))[HEADER_BYTES:]
    with (tmp_path / (FIRST + ".log")).open("ab") as file:
        file.write(headless)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    has_batches = value.startswith(bytes(7))
    if same_boot and has_batches:
        # Appends write from the front: no kill leaves that, so nothing of it is cut.
        assert recovered.end_offset == len(everything) + 3
        assert readable(recovered)[1]  # the batch before it is in doubt, too
        return
    assert values(recovered) == everything
    # What a crash explains is gone. The rest may be anything, so it is kept.
    assert len(list(tmp_path.glob("*.corrupt"))) == (same_boot or has_batches)


@pytest.mark.parametrize("same_boot", [True, False])
def test_leftovers_behind_a_segment_that_is_whole_cost_nothing(
    tmp_path: Path, same_boot: bool
) -> None:
    log = fill(tmp_path, 60)
    everything = values(log)
    assert len(log.segments) > 1
    unfinished = bytes(batch([b"of a batch that went to the next segment" * 9]))[:-1]
    with Path(log.segments[0].file.path).open("ab") as file:
        file.write(unfinished)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    assert values(recovered) == everything
    assert recovered.size_bytes == log.size_bytes
    assert not list(tmp_path.glob("*.corrupt"))


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


@pytest.mark.parametrize("known_by", ["a checkpoint", "its epochs", "nothing"])
def test_log_whose_beginning_a_crash_took_begins_again(tmp_path: Path, known_by: str) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for sequence in range(60):
        data = batch([b"v" * 40], producer_id=7, epoch=0, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    flush(log)  # which also saves the producers at the last roll
    first, second = log.segments[:2]
    Path(first.file.path).unlink()
    if known_by == "its epochs":  # as of a folder that a person has put here
        log.epochs.save(log.fs, log.dir)
    opening = Opening(
        topic="t",
        partition=0,
        config=CONFIG,
        now_ms=NOW_MS,
        is_saved=known_by == "a checkpoint",
        rng=random.Random(1),
    )
    recovered = open_log(OsFileSystem(), str(tmp_path), opening)
    if known_by != "nothing":  # then retention may have taken it
        assert (recovered.start_offset, recovered.end_offset) == (second.base_offset, 60)
        return
    assert (recovered.start_offset, recovered.end_offset) == (0, 0)
    assert list(tmp_path.glob("*.log.corrupt"))
    # A log without the first batch does not recognise a retry of it.
    data = batch([b"v" * 40], producer_id=7, epoch=0, sequence=0)
    assert not recovered.append(data, leader_epoch=0, now_ms=NOW_MS).duplicate

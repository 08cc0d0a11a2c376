"""A flipped bit on disk is found wherever it is: an error, never wrong data, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.disks import (
    DATA,
    START_MS,
    append,
    batch_of,
    copy,
    make_durable,
    open_manager,
    read_all,
)
from tests.faults.wire import Wire
from tests.storage.faulty_files import PowerLossFileSystem

from headrace.protocol.batch import HEADER_BYTES, iter_records, read_header
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Log, Origin, names
from headrace.testing import BrokerThread

FOLDER = f"{DATA}/t-0"
HEADER_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
    "records": (HEADER_BYTES, 25),
}
OFFSETS_PER_BATCH = 2
Rows = list[tuple[int, str]]


def is_corrupt(error: KafkaError) -> bool:
    """True, or the error itself when it is another one."""
    if error.code != ErrorCode.CORRUPT_MESSAGE:
        raise error
    return True


def written_disk(*, stopped: bool = True) -> PowerLossFileSystem:
    """A disk with segments, producers, an aborted transaction and a second partition.

    Cleanly closed, or as a broker leaves it that never came to a checkpoint.
    """
    fs = PowerLossFileSystem()
    manager = open_manager(fs)
    for topic in ("t", "u"):
        log = manager.create(topic, 0, bytes(16))
        for number in range(30):
            append(
                log,
                batch_of([f"v{number}" * 5, f"w{number}"], producer_id=7, base_sequence=2 * number),
            )
        append(log, batch_of(["no"], producer_id=8, base_sequence=0, transactional=True))
        marker = build_marker(
            EndTransactionMarker(ControlType.ABORT, 0),
            producer_id=8,
            producer_epoch=0,
            timestamp=START_MS,
        )
        log.append(memoryview(marker), leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)
        make_durable(log)
    if stopped:
        manager.close()
    return fs


def read_by_batch(log: Log) -> tuple[Rows, int]:
    """What can be read, and how many offsets answered with CORRUPT_MESSAGE."""
    rows: Rows = []
    corrupt = 0
    for offset in range(log.start_offset, log.end_offset):
        try:
            piece = log.read(offset, 1, limit=log.end_offset)
        except KafkaError as error:
            corrupt += is_corrupt(error)
            continue
        assert piece is not None
        rows += [row for row in rows_of(bytes(piece.read())) if row[0] == offset]
    return rows, corrupt


def rows_of(data: bytes) -> Rows:
    header = read_header(data)
    if header.is_control:
        return [(header.base_offset, "marker")]
    return [(record.offset, (record.value or b"").decode()) for record in iter_records(data)]


def reopened(fs: PowerLossFileSystem) -> tuple[Log, Log]:
    manager = open_manager(fs)
    log, other = manager.get("t", 0), manager.get("u", 0)
    assert log is not None
    assert other is not None
    return log, other


@pytest.fixture(scope="module")
def disk() -> PowerLossFileSystem:
    return written_disk()


@pytest.fixture(scope="module")
def truth(disk: PowerLossFileSystem) -> Rows:
    rows, corrupt = read_by_batch(reopened(copy(disk))[0])
    assert corrupt == 0
    return rows


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_in_every_field_of_a_batch_is_corrupt_message_there_and_nowhere_else(
    disk: PowerLossFileSystem, truth: Rows, field: str, clean: bool
) -> None:
    start, length = HEADER_FIELDS[field]
    first = sorted(name for name in disk.list(FOLDER) if name.endswith(names.LOG))[0]
    path = f"{FOLDER}/{first}"
    size = read_header(disk.read(path)).size
    for batch in (0, 4):
        for byte in range(batch * size + start, batch * size + start + length):
            bit = byte * 3 % 8
            fs = copy(disk)
            fs.flip(path, byte, bit)
            if not clean:
                fs.remove(f"{DATA}/{names.CLEAN_SHUTDOWN}")
            log, other = reopened(fs)
            rows, corrupt = read_by_batch(log)
            where = f"{field}, byte {byte}, bit {bit}"
            assert corrupt > 0, where
            assert set(rows) <= set(truth), where
            assert log.end_offset == truth[-1][0] + 1, where
            assert read_by_batch(other) == (truth, 0), where


@pytest.mark.parametrize("field", HEADER_FIELDS)
@pytest.mark.parametrize("power", ["kept", "lost"])
def test_above_the_recovery_point_costs_nothing_behind_it_or_leaves_a_copy(
    truth: Rows, field: str, power: str
) -> None:
    disk = written_disk(stopped=False)
    path = f"{FOLDER}/{min(name for name in disk.list(FOLDER) if name.endswith(names.LOG))}"
    size = read_header(disk.read(path)).size
    start, length = HEADER_FIELDS[field]
    for byte in range(4 * size + start, 4 * size + start + length):
        fs = copy(disk) if power == "kept" else disk.crash()
        fs.flip(path, byte, byte * 3 % 8)
        before = fs.read(path)
        log, other = reopened(fs)
        rows, corrupt = read_by_batch(log)
        where = f"{field}, byte {byte}"
        assert read_by_batch(other) == (truth, 0), where
        assert set(rows) <= set(truth), where
        copies = [name for name in fs.list(FOLDER) if name.endswith(names.CORRUPT)]
        if power == "kept" or field == "leader epoch":
            # No CRC covers the epoch: a wrong one is found by readers, who know the right one.
            assert log.end_offset == truth[-1][0] + 1, where
            assert 0 < corrupt <= 3 * OFFSETS_PER_BATCH, where
            assert copies == [], where
            assert fs.read(path) == before, where
        else:
            assert (rows, corrupt) == (truth[:8], 0), where
            assert fs.read(path) + fs.read(f"{FOLDER}/{copies[0]}") == before, where
            assert len(copies) > 1, where


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_in_an_index_changes_no_answer(
    disk: PowerLossFileSystem, truth: Rows, suffix: str, clean: bool
) -> None:
    times = range(START_MS - 1, START_MS + 3)
    good, _ = reopened(copy(disk))
    aborted = good.aborted_transactions(0, good.end_offset)
    by_time = [good.offset_for_timestamp(time) for time in times]
    assert aborted
    for name in sorted(name for name in disk.list(FOLDER) if name.endswith(suffix)):
        path = f"{FOLDER}/{name}"
        for byte in range(disk.size(path)):
            fs = copy(disk)
            fs.flip(path, byte, byte % 8)
            if not clean:
                fs.remove(f"{DATA}/{names.CLEAN_SHUTDOWN}")
            log, _ = reopened(fs)
            where = f"{name}, byte {byte}"
            assert read_by_batch(log) == (truth, 0), where
            assert [log.offset_for_timestamp(time) for time in times] == by_time, where
            assert log.aborted_transactions(0, log.end_offset) == aborted, where


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_in_a_checkpoint_or_snapshot_loses_no_record_and_no_producer(
    disk: PowerLossFileSystem, truth: Rows, clean: bool
) -> None:
    small = [
        f"{folder}/{name}"
        for folder in (DATA, FOLDER)
        for name in sorted(disk.list(folder))
        if name.endswith((names.SNAPSHOT, names.RECENT_BATCHES, "checkpoint", ".crc32c"))
    ]
    assert len(small) > 5
    for path in small:
        step = max(1, disk.size(path) // 40)
        for byte in range(0, disk.size(path), step):
            fs = copy(disk)
            fs.flip(path, byte, byte % 7)
            if not clean:
                fs.remove(f"{DATA}/{names.CLEAN_SHUTDOWN}")
            log, other = reopened(fs)
            where = f"{os.path.basename(path)}, byte {byte}"
            rows, corrupt = read_by_batch(log)
            assert (rows, corrupt) == (truth, 0), where
            assert read_by_batch(other) == (truth, 0), where
            assert log.producers.by_id[7].next_sequence == 60, where
            duplicate = append(log, batch_of(["v29" * 5, "w29"], producer_id=7, base_sequence=58))
            assert (duplicate.duplicate, duplicate.base_offset) == (True, 58), where


def test_reading_all_of_a_damaged_log_stops_at_the_damage(
    disk: PowerLossFileSystem, truth: Rows
) -> None:
    fs = copy(disk)
    first = sorted(name for name in disk.list(FOLDER) if name.endswith(names.LOG))[0]
    size = read_header(disk.read(f"{FOLDER}/{first}")).size
    fs.flip(f"{FOLDER}/{first}", 3 * size + HEADER_BYTES + 5, 2)
    log, _ = reopened(fs)
    with pytest.raises(KafkaError) as refused:
        read_all(log)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_fetch_of_it_is_corrupt_message_and_other_partitions_are_served(tmp_path: Path) -> None:
    with BrokerThread(data_dir=tmp_path / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("t", 2)
            for partition in range(2):
                for value in ("first", "second", "third"):
                    assert wire.produce("t", partition, batch_of([value])).error_code == 0
        broker.stop()
        path = tmp_path / "data" / "t-0" / names.offset_name(0, names.LOG)
        data = bytearray(path.read_bytes())
        data[data.index(b"second")] ^= 1
        path.write_bytes(data)
        broker.start()
        with Wire(broker.port) as wire:
            (result,) = wire.fetch("t", 0, 1).responses[0].partitions
            assert result.error_code == ErrorCode.CORRUPT_MESSAGE
            assert not result.records
            (before,) = wire.fetch("t", 0, 0).responses[0].partitions
            assert before.error_code == 0
            assert [value for _, value in wire.read_values("t", 1)] == [
                b"first",
                b"second",
                b"third",
            ]
            assert wire.produce("t", 0, batch_of(["fourth"])).base_offset == 3

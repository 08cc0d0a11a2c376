"""A log whose end was torn by a crash recovers to the last whole batch and goes on from there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.faults.disks import (
    DATA,
    append,
    batch_of,
    copy,
    make_durable,
    open_manager,
    read_all,
)
from tests.storage.faulty_files import PowerLossFileSystem

from headrace.storage import names
from headrace.storage.log.scan import iter_headers
from headrace.storage.verify import Severity, verify

LAST_BATCHES = 3
FOLDER = f"{DATA}/t-0"


def truncated(data: bytes, cut: int) -> bytes:
    return data[:cut]


def garbage_after(data: bytes, cut: int) -> bytes:
    return data[:cut] + bytes((cut * 7 + i * 131) % 251 + 1 for i in range(len(data) - cut + 40))


def zeros_after(data: bytes, cut: int) -> bytes:
    return data[:cut] + bytes(len(data) - cut + 40)


def garbage_of_the_same_length(data: bytes, cut: int) -> bytes:
    return data[:cut] + bytes((cut + i * 17) % 255 + 1 for i in range(len(data) - cut))


DAMAGES: list[Callable[[bytes, int], bytes]] = [
    truncated,
    garbage_after,
    zeros_after,
    garbage_of_the_same_length,
]


def written_disk(codec: int) -> PowerLossFileSystem:
    """A disk with several segments of one log, as a killed broker leaves it."""
    fs = PowerLossFileSystem()
    manager = open_manager(fs)
    log = manager.create("t", 0, bytes(16))
    for number in range(24):
        append(
            log,
            batch_of(
                [f"v{number}.{index}" for index in range(1 + number % 3)],
                producer_id=7,
                base_sequence=sum(1 + earlier % 3 for earlier in range(number)),
                codec=codec,
            ),
        )
    make_durable(log)
    other = manager.create("u", 0, bytes(16))
    append(other, batch_of(["safe"]))
    make_durable(other)
    return fs


@pytest.mark.parametrize("damaged", DAMAGES)
@pytest.mark.parametrize("codec", [0, 4])
def test_a_cut_at_every_byte_of_the_last_batches_recovers_to_the_last_whole_one(
    damaged: Callable[[bytes, int], bytes], codec: int
) -> None:
    disk = written_disk(codec)
    last = max(name for name in disk.list(FOLDER) if name.endswith(names.LOG))
    path = f"{FOLDER}/{last}"
    data = disk.read(path)
    batches = list(iter_headers(disk.open(path), 0, len(data)))
    expected = read_all_of(disk)
    assert len(batches) > LAST_BATCHES
    for cut in range(batches[-LAST_BATCHES][0], len(data)):
        fs = copy(disk)
        torn = damaged(data, cut)
        fs.write(path, torn)
        # Zeros in the place of zeros do no harm.
        same = next(
            (i for i, (a, b) in enumerate(zip(torn, data, strict=False)) if a != b), len(torn)
        )
        whole = [header for position, header in batches if position + header.size <= same]
        end_offset = whole[-1].next_offset
        manager = open_manager(fs)
        log = manager.get("t", 0)
        assert log is not None
        assert log.end_offset == end_offset, f"cut at {cut}"
        kept = [row for row in expected if row[0] < end_offset]
        assert read_all(log) == kept
        # The producer's state went back with the log: its next batch is the one that was cut.
        sequence = log.producers.by_id[7].next_sequence
        assert sequence == end_offset
        info = append(log, batch_of(["again"], producer_id=7, base_sequence=sequence))
        assert info.base_offset == end_offset
        make_durable(log)
        assert read_all(log) == [*kept, (end_offset, "again")]
        other = manager.get("u", 0)
        assert other is not None
        assert read_all(other) == [(0, "safe")]
        manager.close()
        assert [f for f in verify(DATA, fs=fs) if f.severity is not Severity.INFO] == []


def read_all_of(disk: PowerLossFileSystem) -> list[tuple[int, str]]:
    log = open_manager(copy(disk)).get("t", 0)
    assert log is not None
    return read_all(log)

"""Logs as a crash or a bad disk leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.storage.batches import (
    NOW_MS,
    append,
    batch,
    open_test_log,
    read_all,
)

from headrace.protocol.batch import HEADER_BYTES
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Log, LogConfig, OsFileSystem
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


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "zeros": lambda path: path.write_bytes(path.read_bytes() + bytes(8 * 12)),
    "garbage": lambda path: path.write_bytes(random.Random(5).randbytes(8 * 12)),
}


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


def embedded(offset: int, count: int = 3) -> bytes:
    """A value that holds batches, as a copy of a log does."""
    return b"".join(
        bytes(batch([b"inner"], base_offset=offset + n, leader_epoch=0)) for n in range(count)
    )

"""Compacted logs under a real manager, for tests of planning and of the whole cleaner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from headrace.protocol.batch import build_batch, iter_headers, iter_records
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.records import Record
from headrace.storage import Log, LogConfig, LogManager, Origin, OsFileSystem
from headrace.storage.cleaner import Cleaner, CleanerLimits
from headrace.storage.cleaner.cleaner import RunInWorker
from headrace.storage.files import FileSystem
from headrace.storage.log.config import COMPACT

T = TypeVar("T")

START_MS = 1_700_000_000_000
CONFIG = LogConfig(
    cleanup_policy=frozenset({COMPACT}),
    segment_bytes=2_000,
    index_interval_bytes=200,
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


async def at_once(function: Callable[..., T], /, *args: object) -> T:
    """Runs in place what the broker would send to a worker or a thread."""
    return function(*args)


class Bench:
    """A manager in a folder, with a clock that only moves by hand."""

    def __init__(self, path: Path, fs: FileSystem | None = None, config: LogConfig = CONFIG):
        self.fs = fs or OsFileSystem()
        self.path = str(path)
        self.now_ms = START_MS
        self.manager = LogManager(self.fs, [self.path], config, lambda: self.now_ms)
        self.manager.open()
        self.manager.load()

    def log(self, partition: int = 0) -> Log:
        log = self.manager.get("t", partition)
        return log or self.manager.create("t", partition, bytes(16))

    def cleaner(
        self,
        *,
        run_in_worker: RunInWorker = at_once,
        limits: CleanerLimits | None = None,
    ) -> Cleaner:
        return Cleaner(self.manager, run_in_worker, at_once, limits)

    def close(self) -> None:
        self.manager.close()


def put(
    log: Log,
    pairs: Sequence[tuple[str, str | None]],
    *,
    timestamp: int = START_MS,
    producer_id: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
) -> int:
    """Append one batch as a client would and let readers see it; its base offset."""
    batch = build_batch(
        [
            Record(index, timestamp, key.encode(), None if value is None else value.encode())
            for index, (key, value) in enumerate(pairs)
        ],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        transactional=transactional,
        codec=codec,
    )
    info = log.append(memoryview(batch), leader_epoch=0, now_ms=timestamp)
    settle(log)
    return info.base_offset


def settle(log: Log) -> None:
    """As after a sync and a checkpoint, without the wait for the disk."""
    log.high_watermark = log.recovery_point = log.end_offset


def end(log: Log, producer_id: int, control: ControlType) -> None:
    """Append a transaction marker."""
    marker = build_marker(
        EndTransactionMarker(control, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=START_MS,
    )
    log.append(memoryview(marker), leader_epoch=0, now_ms=START_MS, origin=Origin.COORDINATOR)
    settle(log)


def read_all(log: Log) -> list[Record]:
    """Every data record a reader gets, fetch by fetch."""
    records: list[Record] = []
    offset = log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, 4096, limit=log.end_offset)
        if piece is None:
            break
        data = memoryview(piece.read())
        for position, header in iter_headers(data):
            if not header.is_control:
                records += [
                    record
                    for record in iter_records(data[position : position + header.size])
                    if record.offset >= offset
                ]
            offset = header.next_offset
    return records


def state(log: Log) -> dict[str, str]:
    """The last value of each key."""
    result: dict[str, str] = {}
    for record in read_all(log):
        key = (record.key or b"").decode()
        if record.value is None:
            result.pop(key, None)
        else:
            result[key] = record.value.decode()
    return result

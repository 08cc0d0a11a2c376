"""Logs on a disk in memory, for tests that break the disk thousands of times."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.storage.faulty_files import PowerLossFileSystem

from headrace.protocol.batch import build_batch, iter_headers, iter_records
from headrace.protocol.records import Record
from headrace.storage import AppendInfo, Log, LogConfig, LogManager

DATA = "/data"
START_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=150, file_delete_delay_ms=0)

Value = str


def open_manager(
    fs: PowerLossFileSystem, config: LogConfig = CONFIG, dirs: Sequence[str] = (DATA,)
) -> LogManager:
    """All logs of the disk, recovered if need be; the seed keeps jitter and names the same."""
    manager = LogManager(fs, dirs, config, lambda: START_MS, rng=random.Random(1))
    manager.open()
    manager.load()
    return manager


def copy(fs: PowerLossFileSystem) -> PowerLossFileSystem:
    """The disk with everything written so far, synced or not: what a killed process leaves."""
    return fs.crash(random.Random(0), keep_probability=1)


def batch_of(
    values: Iterable[Value],
    *,
    producer_id: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    keys: Sequence[str] = (),
    codec: int = 0,
) -> bytearray:
    """A batch as a producer would send it."""
    return build_batch(
        [
            Record(
                index,
                START_MS + index,
                keys[index].encode() if keys else None,
                value.encode(),
            )
            for index, value in enumerate(values)
        ],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        transactional=transactional,
        codec=codec,
    )


def append(log: Log, batch: bytearray) -> AppendInfo:
    return log.append(memoryview(batch), leader_epoch=0, now_ms=START_MS)


def make_durable(log: Log) -> None:
    """Sync as the broker's sync threads do, then let readers see it."""
    flush = log.begin_flush()
    if flush is not None:
        flush.run()
        log.complete_flush(flush)
    if log.offline_error is not None:
        raise log.offline_error
    log.high_watermark = log.synced_offset


def read_all(log: Log) -> list[tuple[int, Value]]:
    """Every data record from the start, as a reader gets them; raises KafkaError."""
    rows: list[tuple[int, Value]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        piece = log.read(offset, 100_000, limit=log.end_offset)
        if piece is None:
            break
        data = memoryview(piece.read())
        for position, header in iter_headers(data):
            if not header.is_control:
                rows += [
                    (record.offset, (record.value or b"").decode())
                    for record in iter_records(data[position : position + header.size])
                    if record.offset >= offset
                ]
            offset = header.next_offset
    return rows


def compacted(config: LogConfig = CONFIG) -> LogConfig:
    return replace(
        config,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
    )

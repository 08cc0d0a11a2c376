"""Batches for tests of the log, and a log to put them into."""

from __future__ import annotations

import random
from collections.abc import Iterable

from headrace.protocol.batch import build_batch, iter_headers, iter_records
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.records import Record
from headrace.storage import FileSystem, Log, LogConfig, Origin
from headrace.storage.recovery.recovery import Opening, open_log

NOW_MS = 1_700_000_000_000
FOLDER = "/data/t-0"


def batch(
    values: Iterable[bytes] = (b"v",),
    *,
    timestamp: int = NOW_MS,
    codec: int = 0,
    key: bytes | None = b"k",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    """A produced batch, ready to be appended."""
    records = [
        Record(base_offset + delta, timestamp, key, value) for delta, value in enumerate(values)
    ]
    return memoryview(
        build_batch(
            records,
            base_offset=base_offset,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            leader_epoch=leader_epoch,
        )
    )


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> memoryview:
    """The marker that ends a transaction."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return memoryview(
        build_marker(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=NOW_MS,
        )
    )


def open_test_log(
    fs: FileSystem,
    folder: str = FOLDER,
    *,
    config: LogConfig | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    start_offset: int = 0,
    now_ms: int = NOW_MS,
) -> Log:
    """Open a log by itself, without a manager; makes the folder."""
    fs.mkdir(folder)
    opening = Opening(
        topic="t",
        partition=0,
        config=config or LogConfig(),
        now_ms=now_ms,
        clean=clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
        rng=random.Random(1),
    )
    return open_log(fs, folder, opening)


def append(log: Log, *values: bytes, timestamp: int = NOW_MS, now_ms: int = NOW_MS) -> int:
    """Append one batch of values; its base offset."""
    info = log.append(batch(values, timestamp=timestamp), leader_epoch=0, now_ms=now_ms)
    return info.base_offset


def append_marker(log: Log, producer_id: int, epoch: int, *, commit: bool) -> int:
    """Append a marker as the coordinator does; its offset."""
    data = marker(producer_id, epoch, commit=commit)
    leader_epoch = max(0, log.epochs.latest)
    info = log.append(data, leader_epoch=leader_epoch, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    return info.base_offset


def flush(log: Log) -> None:
    """Sync a log as the broker would, on one thread."""
    pending = log.begin_flush()
    if pending is not None:
        pending.run()
        log.complete_flush(pending)


def checkpoint(log: Log) -> int:
    """Save a log as the manager would; its recovery point."""
    pending = log.begin_checkpoint()
    if pending is not None:
        pending.run()
        pending.remove_older()
        log.complete_checkpoint(pending)
    return log.recovery_point


def read_all(log: Log, offset: int | None = None, upto: int | None = None) -> list[Record]:
    """All records from an offset (the start) up to an offset (the end)."""
    at = log.start_offset if offset is None else offset
    limit = log.end_offset if upto is None else upto
    records: list[Record] = []
    while at < limit:
        piece = log.read(at, 1 << 20, limit=limit)
        if piece is None:
            break
        data = bytes(piece.read())
        for position, header in iter_headers(data):
            if not header.is_control:
                records += [r for r in iter_records(data, position) if r.offset >= at]
            next_offset = header.next_offset
        at = next_offset
    return records


def values(log: Log, offset: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records."""
    return [(record.offset, record.value) for record in read_all(log, offset)]

"""Removing data from a log: at its start by retention and DeleteRecords, at its end by leaders.

A deleted segment is first renamed to `.deleted`, so that a crash cannot bring back a part of it,
and removed later, so that readers that already hold a piece of it can finish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import names
from headrace.storage.log import snapshots
from headrace.storage.log.segment import Segment
from headrace.storage.recovery.replay import rebuild_producers

if TYPE_CHECKING:
    from headrace.storage.log.log import Log

UP_TO_HIGH_WATERMARK = -1


def delete_records(log: Log, offset: int) -> int:
    """Move the start of the log up to an offset (-1: the high watermark); returns the new start.

    Durable after the next checkpoint. The next retention run deletes segments below it.
    """
    if offset == UP_TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records can be deleted up to the high watermark {log.high_watermark}, not {offset}",
        )
    advance_start(log, offset)
    return log.start_offset


def advance_start(log: Log, offset: int) -> None:
    if offset > log.start_offset:
        log.start_offset = offset
        log.epochs.truncate_start(offset)
        # Reads of the newest batches do not check the start: send those below it elsewhere.
        log.active.recent_from = max(log.active.recent_from, offset)


def delete_oldest(log: Log, count: int, now_ms: int) -> int:
    """Delete the oldest segments, rolling first if that is all of them; returns the bytes freed."""
    if count <= 0 or log.swap is not None:
        return 0
    if count >= len(log.segments):
        log.roll(now_ms)
        count = min(count, len(log.segments) - 1)
    oldest = log.segments[:count]
    gone = 0
    try:
        for segment in oldest:
            segment.rename(log.fs, names.DELETED)
            log.unsynced.add(None, log.dir)
            log.delete_later(segment, now_ms)
            gone += 1
    finally:  # also when the disk fails half-way
        log.set_segments(log.segments[gone:])
        advance_start(log, log.segments[0].base_offset)
    _remove_snapshots(log, below=log.segments[0].base_offset)
    return sum(segment.size for segment in oldest)


def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """Drop the batches that reach offset or beyond; durable when this returns.

    The recovery point is lowered first: after a crash, an old checkpoint must not make recovery
    trust what is appended here next.
    """
    if offset >= log.end_offset:
        return
    if offset < log.segments[0].base_offset:
        restart_at(log, offset, now_ms)
        return
    keep = [segment for segment in log.segments if segment.base_offset <= offset]
    last = keep[-1]
    found = last.locate(offset)
    end_offset = min(offset, found[1].base_offset) if found else offset
    if end_offset < log.start_offset:
        restart_at(log, log.start_offset, now_ms)  # only deleted records would be left
        return
    log.unsynced.cap(end_offset)
    log.lower_recovery_point(end_offset)
    for segment in log.segments[len(keep) :]:
        log.unsynced.forget(segment)
        segment.remove(log.fs)
    if found is not None:
        last.truncate(found[0], end_offset)
    log.set_segments(keep)
    _ended_at(log, end_offset)
    log.epochs.truncate_end(end_offset)
    log.epochs.save(log.fs, log.dir)  # a running checkpoint was kept from doing it
    _remove_snapshots(log, above=end_offset)
    last.file.sync()
    log.fs.sync_dir(log.dir)
    log.producers = rebuild_producers(
        log.fs, log.dir, log.fs.list(log.dir), log.segments, log.end_offset, log.epochs
    )
    log.high_watermark = min(log.high_watermark, end_offset)
    # The snapshots above are gone, and one below may not be durable.
    for path, content in snapshots.contents(log.dir, end_offset, log.producers).items():
        log.fs.write_atomic(path, content)


def restart_at(log: Log, offset: int, now_ms: int) -> None:
    """Drop everything and begin again, empty, at an offset; durable when this returns."""
    log.unsynced.cap(0)
    log.lower_recovery_point(0)
    for segment in log.segments:
        log.unsynced.forget(segment)
        segment.remove(log.fs)
    log.set_segments([Segment.create(log.fs, log.dir, offset, now_ms)])
    log.start_offset = offset
    _ended_at(log, offset)
    log.epochs.clear()
    log.epochs.save(log.fs, log.dir)  # or recovery would consider a log that begins here torn
    log.producers.clear()
    _remove_snapshots(log, below=1 << 63)
    log.fs.sync_dir(log.dir)


def _ended_at(log: Log, end_offset: int) -> None:
    log.truncations += 1
    log.end_offset = end_offset
    log.start_offset = min(log.start_offset, end_offset)
    log.synced_offset = min(log.synced_offset, end_offset)
    log.recovery_point = min(log.recovery_point, end_offset)
    log.high_watermark = min(log.high_watermark, end_offset)


def _remove_snapshots(log: Log, below: int = -1, above: int = 1 << 63) -> None:
    present = log.fs.list(log.dir)
    old = {offset for offset in snapshots.offsets(present) if offset < below or offset > above}
    snapshots.remove(log.fs, log.dir, present, old)

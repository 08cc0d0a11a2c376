"""Deletes the segments of a log that are too old, too large in sum, or below its start.

Only segments below the recovery point are deleted: only there a durable snapshot remembers the
producers whose batches are gone. Others wait for the next checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.storage.log import trimming
from headrace.storage.log.scan import BadBatch
from headrace.storage.log.sparse_index import CorruptIndex

if TYPE_CHECKING:
    from headrace.storage.log.log import Log
    from headrace.storage.log.segment import Segment


def apply(log: Log, now_ms: int) -> int:
    """Delete segments according to the settings; returns how many."""
    if log.swap is not None:
        return 0
    count = _below_start(log)
    if log.config.deletes:
        count = max(count, _expired(log, now_ms), _oversized(log))
    if count:
        before = len(log.segments)
        trimming.delete_oldest(log, count, now_ms)
        return min(count, before)
    return 0


def _deletable(log: Log) -> list[Segment]:
    """Segments that all readers could have read and recovery no longer needs, oldest first."""
    ends = [segment.base_offset for segment in log.segments[1:]]
    if log.active.size:
        ends.append(log.end_offset)
    limit = min(log.high_watermark, log.recovery_point)
    return [segment for segment, end in zip(log.segments, ends, strict=False) if end <= limit]


def _below_start(log: Log) -> int:
    limit = min(log.start_offset, log.recovery_point)
    return sum(1 for segment in log.segments[1:] if segment.base_offset <= limit)


def _expired(log: Log, now_ms: int) -> int:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0
    count = 0
    for segment in _deletable(log):
        if now_ms - _newest_ms(segment, now_ms) <= retention_ms:
            break
        count += 1
    return count


def _newest_ms(segment: Segment, now_ms: int) -> int:
    """The greatest timestamp; the file's time without any, now if it cannot be read."""
    try:
        largest = segment.largest_timestamp()
    except (BadBatch, CorruptIndex):
        return now_ms
    return largest if largest >= 0 else segment.modified_ms()


def _oversized(log: Log) -> int:
    limit = log.config.retention_bytes
    excess = log.size_bytes - limit
    if limit < 0 or excess < 0:
        return 0
    count = 0
    for segment in _deletable(log):
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count

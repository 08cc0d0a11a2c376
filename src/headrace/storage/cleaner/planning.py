"""Decides which log to clean next, and how much of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from headrace.storage.cleaner.options import LastRecord, SegmentFacts
from headrace.storage.log.log import Log
from headrace.storage.log.segment import Segment


class Candidate(NamedTuple):
    """A compacted log as the cleaner sees it: clean, then dirty, then not cleanable."""

    log: Log
    first_dirty_offset: int
    #: The base of the first segment that must not be cleaned: active, undecided, too young.
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: Dirty for longer than `max.compaction.lag.ms` allows.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def dirtiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The candidate with the greatest dirty part among those that are due."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda candidate: candidate.dirty_ratio, default=None)


def examine(log: Log, cleaned_offset: int | None, now_ms: int) -> Candidate:
    """Measure a log that was cleaned up to an offset, or never (None); raises BadBatch."""
    first_dirty_offset = log.start_offset if cleaned_offset is None else cleaned_offset
    # Below the start after DeleteRecords, above the end after lost data: start again.
    if not log.start_offset <= first_dirty_offset <= log.end_offset:
        first_dirty_offset = log.start_offset
    segments = log.segments
    cleanable = _cleanable(log, first_dirty_offset, now_ms)
    ends = [segment.base_offset for segment in segments[1:]]
    clean_bytes = dirty_bytes = 0
    overdue = False
    for segment, end_offset in zip(segments[:cleanable], ends, strict=False):
        if end_offset <= first_dirty_offset:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            overdue = overdue or _is_overdue(segment, now_ms - log.config.max_compaction_lag_ms)
    return Candidate(
        log,
        first_dirty_offset,
        segments[cleanable].base_offset,
        clean_bytes,
        dirty_bytes,
        overdue,
    )


def _cleanable(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    """How many segments, from the oldest on, may be cleaned; never the active one.

    Above the recovery point no durable snapshot has the producers yet: after a crash their last
    five batches, which they may still repeat, are read from the log, so they stay there.
    """
    young_ms = now_ms - log.config.min_compaction_lag_ms
    limit = min(log.last_stable_offset, log.recovery_point)
    segments = log.segments
    for index in range(len(segments) - 1):
        end_offset = segments[index + 1].base_offset
        if end_offset > limit:
            return index
        if (
            log.config.min_compaction_lag_ms > 0
            and end_offset > first_dirty_offset
            and segments[index].largest_timestamp() > young_ms
        ):
            return index
    return len(segments) - 1


def _is_overdue(segment: Segment, oldest_ms: int) -> bool:
    if oldest_ms <= 0 or not segment.size:
        return False
    return 0 < segment.earliest_timestamp() < oldest_ms


def segment_facts(candidate: Candidate) -> list[SegmentFacts]:
    """The segments to clean, as a worker needs them."""
    segments = candidate.log.segments
    return [
        SegmentFacts(
            segment.base_offset,
            following.base_offset,
            segment.size,
            segment.offsets.count * segment.offsets.ENTRY.size,
            segment.times.count * segment.times.ENTRY.size,
        )
        for segment, following in pairwise(segments)
        if segment.base_offset < candidate.first_uncleanable_offset
    ]


def last_records(log: Log) -> dict[int, LastRecord]:
    """What must stay in the log of every active producer."""
    return {
        producer.producer_id: LastRecord(
            producer.last_offset if producer.batches else None, producer.epoch
        )
        for producer in log.producers
    }

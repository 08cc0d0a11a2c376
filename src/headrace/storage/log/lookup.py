"""Lookups in a log by its indexes: offsets by time, aborted transactions.

They may wait for the disk and may be called from any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from headrace.protocol.batch import iter_records
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.log.scan import BadBatch, iter_checked
from headrace.storage.log.sparse_index import CorruptIndex
from headrace.storage.recovery.repair import check_aborted

if TYPE_CHECKING:
    from headrace.storage.log.log import Log
    from headrace.storage.log.segment import Segment
    from headrace.storage.log.slices import Slice

SEARCH_CHUNK_BYTES = 64 << 10

_last_offset = attrgetter("last_offset")


class TimestampOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int
    leader_epoch: int


def refuse_offset(log: Log, offset: int) -> NoReturn:
    raise KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not in {log.topic}-{log.partition}, "
        f"which holds {log.start_offset} to {log.end_offset}",
    )


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record with a timestamp at or after the given one."""
    start_offset = log.start_offset
    try:
        for segment in list(log.segments):
            if segment.largest_timestamp() >= timestamp:
                found = _search(segment, timestamp, start_offset)
                if found is not None:
                    return found
    except BadBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.dir}: {error}") from error
    return None


def max_timestamp_offset(log: Log) -> TimestampOffset | None:
    """The first record with the greatest timestamp of the log."""
    best: Segment | None = None
    try:
        for segment in list(log.segments):
            if segment.size and (
                best is None or segment.largest_timestamp() > best.largest_timestamp()
            ):
                best = segment
        if best is None or best.largest_timestamp() < 0:
            return None
        return _search(best, best.largest_timestamp(), log.start_offset)
    except BadBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.dir}: {error}") from error


def aborted_transactions(log: Log, from_offset: int, limit: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions that overlap a range."""
    found: list[tuple[int, int]] = []
    segments = list(log.segments)
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= from_offset:
            continue
        if not segment.txn_index.is_verified:
            check_aborted(log, segment)
        entries = segment.txn_index.aborted
        for at in range(bisect_left(entries, from_offset, key=_last_offset), len(entries)):
            entry = entries[at]
            if entry.first_offset < limit:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= limit:
                return found
    return found


def offset_behind(log: Log, piece: Slice) -> int:
    """An offset just above a piece of the log.

    Found by the index, as in Kafka: it may be too high by the distance of two index entries.
    """
    end_offset = log.end_offset
    for segment in reversed(log.segments):
        if segment.file is piece.file:
            return min(end_offset, _offset_at(segment, piece.position + piece.length, end_offset))
        end_offset = segment.base_offset
    return log.end_offset


def _offset_at(segment: Segment, position: int, end_offset: int) -> int:
    """An offset above all batches that begin before a position of a segment."""
    nexts, positions = segment.recent_nexts, segment.recent_positions
    if positions and position > positions[0]:
        return nexts[bisect_left(positions, position) - 1]
    if position < segment.size and not segment.index_damaged:
        try:
            entry = segment.offsets.first_from_value(position)
            if entry is not None:
                if segment.is_truthful(entry):
                    return segment.base_offset + entry[0]
                segment.index_damaged = True
        except CorruptIndex:
            segment.index_damaged = True
    return nexts[0] if positions else end_offset


def _search(segment: Segment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    start = _start(segment, timestamp, start_offset)
    for _, header, batch in iter_checked(segment.file, start, segment.size, SEARCH_CHUNK_BYTES):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in iter_records(batch):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def _start(segment: Segment, timestamp: int, start_offset: int) -> int:
    """A position before which no record can match; 0 if the time index does not help."""
    try:
        # One below: the batch of an entry with exactly this timestamp may itself be the answer.
        entry = segment.times.floor(timestamp - 1)
    except CorruptIndex:
        segment.index_damaged = True
        entry = None
    offset = max(segment.base_offset, start_offset)
    if entry is None:
        return _position(segment, offset)
    entry_offset = segment.base_offset + entry[1]
    found = segment.locate(entry_offset)
    # A sound entry has an offset of a batch and the greatest timestamp of that batch.
    if found is None or found[1].max_timestamp != entry[0]:
        segment.index_damaged = True
        return _position(segment, offset)
    return _position(segment, max(offset, entry_offset))


def _position(segment: Segment, offset: int) -> int:
    found = segment.locate(offset)
    return segment.size if found is None else found[0]

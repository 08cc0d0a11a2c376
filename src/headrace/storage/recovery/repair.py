"""Rebuilds the indexes of a segment from its batches when they turn out to be wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.protocol.batch import BatchHeader, InvalidBatch
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.log.epochs import EpochCache
from headrace.storage.log.scan import BadBatch, iter_checked
from headrace.storage.log.segment import Segment
from headrace.storage.log.sparse_index import CorruptIndex, OffsetIndex, TimeIndex
from headrace.storage.log.txn_index import AbortedTxn
from headrace.storage.recovery.replay import load_snapshot, replay_segment

if TYPE_CHECKING:
    from headrace.storage.log.log import Log

_log = logging.getLogger(__name__)
_REBUILT = ".rebuilt.tmp"
_one_at_a_time = threading.Lock()


def rebuild_indexes(segment: Segment, end_offset: int) -> None:
    """Replace the indexes of a sealed segment that ends at an offset; on any thread.

    If a batch itself is damaged, sound entries of the old index lead past it, so that only the
    damaged batch cannot be read. Raises OSError.
    """
    with _one_at_a_time:
        if not segment.index_damaged:
            return
        _log.warning("%s is rebuilt from its log", segment.offsets.path)
        fs = segment.offsets.fs
        fresh = Segment(
            segment.folder,
            segment.base_offset,
            segment.file,
            OffsetIndex(fs, segment.offsets.path + _REBUILT),
            TimeIndex(fs, segment.times.path + _REBUILT),
            segment.txn_index,
            segment.created_ms,
        )
        fresh.index_interval_bytes = segment.index_interval_bytes
        fresh.reset_indexes()
        for position, header in _credible_batches(segment, end_offset):
            fresh.record(header.last_offset, position, header.size, header.max_timestamp)
        fresh.seal()
        for index, path in (
            (fresh.offsets, segment.offsets.path),
            (fresh.times, segment.times.path),
        ):
            fs.sync_path(index.path)
            fs.rename(index.path, path)
            index.renamed(path)
        segment.offsets, segment.times = fresh.offsets, fresh.times
        segment.index_damaged = False


def check_aborted(log: Log, segment: Segment) -> None:
    """Compare a transaction index with the log, and rebuild it if they disagree.

    Raises KafkaError if the log is damaged too: without the index, readers would get aborted
    records.
    """
    try:
        entries = segment.txn_index.aborted  # reading them may find a checksum that verifies them
        if segment.txn_index.is_verified or all(_is_truthful(log, segment, e) for e in entries):
            segment.txn_index.is_verified = True
            return
    except (CorruptIndex, BadBatch) as error:
        _log.warning("%s: %s", segment.txn_index.path, error)
    _log.warning("%s is rebuilt from its log", segment.txn_index.path)
    segment.txn_index.reset(_find_aborted(log, segment))
    # Durable at once: if the recovery point is above it, no start checks it again.
    for file in segment.txn_index.unsynced_files():
        file.sync()
    log.fs.sync_dir(segment.folder)


def _is_truthful(log: Log, segment: Segment, entry: AbortedTxn) -> bool:
    """Whether an entry's marker is where it says, and its first batch, unless that is deleted."""
    found = segment.locate(entry.last_offset)
    if found is None or not found[1].is_control:
        return False
    marker = found[1]
    if (marker.last_offset, marker.producer_id) != (entry.last_offset, entry.producer_id):
        return False
    for holder in reversed(log.segments):
        if holder.base_offset <= entry.first_offset:
            begun = holder.locate(entry.first_offset)
            if begun is None or begun[1].base_offset > entry.first_offset:
                return True  # compacted away
            first = begun[1]
            return (first.base_offset, first.producer_id, first.is_transactional) == (
                entry.first_offset,
                entry.producer_id,
                True,
            )
    return True  # deleted


class _Collected:
    """Aborted transactions in memory."""

    def __init__(self) -> None:
        self.aborted: list[AbortedTxn] = []

    def append(self, entry: AbortedTxn) -> None:
        self.aborted.append(entry)


def _find_aborted(log: Log, segment: Segment) -> list[AbortedTxn]:
    producers, start = load_snapshot(log.fs, log.dir, log.fs.list(log.dir), segment.base_offset)
    collected = _Collected()
    try:
        for index, each in enumerate(log.segments):
            following = log.segments[index + 1 : index + 2]
            if not following or following[0].base_offset > start:
                aborted = collected if each is segment else _Collected()
                replay_segment(each, start, producers, EpochCache([]), aborted)
            if each is segment:
                break
    except (BadBatch, InvalidBatch) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{segment.txn_index.path} is damaged and cannot be rebuilt: {error}",
        ) from error
    return collected.aborted


def _credible_batches(segment: Segment, end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches whose offsets are between those of their neighbours."""
    expected = segment.base_offset
    held: tuple[int, BatchHeader] | None = None
    for position, header in _all_batches(segment):
        if held is not None and held[1].next_offset <= header.base_offset:
            yield held
            expected = held[1].next_offset
        # Otherwise one of the two is wrong, and neither is used.
        held = (position, header) if header.base_offset >= expected else None
    if held is not None and held[1].next_offset <= end_offset:
        yield held


def _all_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
    """All batches that can be found: by their lengths or, after damage, by the old index."""
    position: int | None = 0
    while position is not None:
        try:
            for at, header, _ in iter_checked(segment.file, position, segment.size):
                yield at, header
            position = None
        except BadBatch as error:
            position = _position_after(segment, error.position)


def _position_after(segment: Segment, position: int) -> int | None:
    for entry in segment.offsets.entries():
        if entry[1] > position and segment.is_truthful(entry):
            return entry[1]
    return None

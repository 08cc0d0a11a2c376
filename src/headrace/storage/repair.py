"""Making the indexes of a segment again from its batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from headrace.protocol.batch import BatchHeader
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.scan import BadBatch, iter_checked
from headrace.storage.segment import Segment
from headrace.storage.time_index import TimeIndex

_log = logging.getLogger(__name__)
_REBUILT = ".rebuilt.tmp"
_one_at_a_time = threading.Lock()


def rebuild_indexes(segment: Segment, end_offset: int) -> None:
    """Replace the indexes of a sealed segment, which ends at an offset; any thread may do so.

    Where a batch itself is damaged, entries of the old index that are right lead on behind it, so
    that only the damaged batch is out of reach. Raises OSError.
    """
    with _one_at_a_time:
        if not segment.index_damaged:
            return
        _log.warning("%s is built again from its log", segment.offsets.path)
        fs = segment.offsets.fs
        fresh = Segment(
            segment.folder,
            segment.base_offset,
            segment.file,
            OffsetIndex(fs, segment.offsets.path + _REBUILT),
            TimeIndex(fs, segment.times.path + _REBUILT),
            segment.aborted,
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


def _credible_batches(segment: Segment, end_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches whose offsets lie between those of their neighbours."""
    expected = segment.base_offset
    held: tuple[int, BatchHeader] | None = None
    for position, header in _all_batches(segment):
        if held is not None and held[1].next_offset <= header.base_offset:
            yield held
            expected = held[1].next_offset
        # Else one of the two lies, and without knowing which neither is taken as it is.
        held = (position, header) if header.base_offset >= expected else None
    if held is not None and held[1].next_offset <= end_offset:
        yield held


def _all_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
    """All batches that can be reached: by their lengths or, behind damage, by the old index."""
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

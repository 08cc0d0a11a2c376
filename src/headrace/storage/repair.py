"""Making the indexes of a segment again from its batches."""

from __future__ import annotations

import logging
import threading

from headrace.storage.offset_index import OffsetIndex
from headrace.storage.scan import SCAN_CHUNK_BYTES, BadBatch, iter_headers
from headrace.storage.segment import Segment
from headrace.storage.time_index import TimeIndex

_log = logging.getLogger(__name__)
_REBUILT = ".rebuilt.tmp"
_one_at_a_time = threading.Lock()


def rebuild_indexes(segment: Segment) -> None:
    """Replace the indexes of a sealed segment; any thread may do so. Raises OSError.

    Where a batch itself is damaged, entries of the old index that are right lead on behind it, so
    that only the damaged batch is out of reach.
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
        position: int | None = 0
        while position is not None:
            position = _record_from(fresh, position, segment)
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


def _record_from(fresh: Segment, position: int, segment: Segment) -> int | None:
    """Index the batches from position on; where to go on behind damage, or None at the end."""
    try:
        for at, header in iter_headers(
            segment.file, position, segment.size, chunk_bytes=SCAN_CHUNK_BYTES
        ):
            fresh.record(header.last_offset, at, header.size, header.max_timestamp)
    except BadBatch as error:
        for entry in segment.offsets.entries():
            if entry[1] > error.position and segment.is_truthful(entry):
                return entry[1]
    return None

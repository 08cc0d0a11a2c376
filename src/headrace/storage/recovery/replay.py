"""Applies batches to the state beside the log: producers, epochs, aborted transactions.

This is the only way from batches to that state, used for appends of coordinators and leaders and
wherever the state is rebuilt from files.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from headrace.protocol.batch import BatchHeader, InvalidBatch
from headrace.protocol.control import ControlType, parse_marker
from headrace.storage.files import Buffer, FileSystem
from headrace.storage.log import snapshots
from headrace.storage.log.epochs import EpochCache
from headrace.storage.log.producers import Producers
from headrace.storage.log.scan import SCAN_CHUNK_BYTES, BadBatch, iter_headers
from headrace.storage.log.segment import Segment
from headrace.storage.log.txn_index import AbortedTxn

_log = logging.getLogger(__name__)


class AbortedTxns(Protocol):
    """Where aborted transactions are added: an index, or a list in memory."""

    def append(self, entry: AbortedTxn) -> None:
        """Add an entry unless it is there already."""


def replay(
    header: BatchHeader,
    batch: Buffer | None,
    producers: Producers,
    epochs: EpochCache,
    aborted: AbortedTxns,
) -> None:
    """Apply one batch; only a control batch needs its bytes."""
    if header.leader_epoch > epochs.latest:
        epochs.assign(header.leader_epoch, header.base_offset)
    if header.producer_id < 0:
        return
    if header.is_control:
        assert batch is not None
        _replay_marker(header, batch, producers, aborted)
    else:
        producers.append_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )


def _replay_marker(
    header: BatchHeader, batch: Buffer, producers: Producers, aborted: AbortedTxns
) -> None:
    marker = parse_marker(batch)
    if marker is None:
        return
    is_abort = marker.control_type == ControlType.ABORT
    completed = producers.append_marker(
        header.producer_id,
        header.producer_epoch,
        header.last_offset,
        marker.coordinator_epoch,
        header.max_timestamp,
        is_abort,
    )
    if completed is not None and is_abort:
        aborted.append(
            AbortedTxn(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset_after(completed),
            )
        )


def rebuild_producers(
    fs: FileSystem,
    folder: str,
    present: Collection[str],
    segments: list[Segment],
    snapshot_offset_max: int,
    epochs: EpochCache,
) -> Producers:
    """The producers at the end of a log, from the newest sound snapshot and later batches."""
    producers, start = load_snapshot(fs, folder, present, snapshot_offset_max)
    replay_from(segments, start, producers, epochs)
    return producers


def load_snapshot(
    fs: FileSystem, folder: str, present: Collection[str], offset_max: int
) -> tuple[Producers, int]:
    """The producers of the newest sound snapshot up to an offset, and its own offset."""
    producers = Producers()
    for offset in reversed(snapshots.offsets(present)):
        if offset > offset_max:
            continue
        try:
            restored = snapshots.read(fs, folder, offset)
        except (snapshots.CorruptSnapshot, OSError) as error:
            _log.warning("%s: the snapshot at %d is skipped: %s", folder, offset, error)
            continue
        for producer in restored:
            producers.restore(producer)
        return producers, offset
    return producers, 0


def replay_from(
    segments: list[Segment], offset: int, producers: Producers, epochs: EpochCache
) -> None:
    """Apply all batches from an offset on, except those after damage in a segment."""
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
            continue
        try:
            replay_segment(segment, offset, producers, epochs, segment.txn_index)
        except (BadBatch, InvalidBatch) as error:
            _log.error("%s: producer state is incomplete: %s", segment.file.path, error)


def replay_segment(
    segment: Segment,
    offset: int,
    producers: Producers,
    epochs: EpochCache,
    aborted: AbortedTxns,
) -> None:
    """Apply the batches of one segment from an offset on; raises BadBatch and InvalidBatch."""
    start = 0
    if offset > segment.base_offset:
        found = segment.locate(offset)
        if found is None:
            return
        start = found[0]
    file = segment.file
    for begin, end in segment.sound_ranges(start):
        for position, header in iter_headers(file, begin, end, chunk_bytes=SCAN_CHUNK_BYTES):
            batch = file.pread(header.size, position) if header.is_control else None
            replay(header, batch, producers, epochs, aborted)

"""What a batch on disk means to the state beside the log: producers, epochs, aborted transactions.

The one way in which that state follows from batches, used by appends of coordinators and leaders
and by everything that rebuilds it from files.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from headrace.protocol.batch import BatchHeader, InvalidBatch
from headrace.protocol.control import ControlType, parse_marker
from headrace.storage import snapshots
from headrace.storage.epochs import EpochCache
from headrace.storage.files import Buffer, FileSystem
from headrace.storage.producers import Producers
from headrace.storage.scan import SCAN_CHUNK_BYTES, BadBatch, iter_headers
from headrace.storage.segment import Segment
from headrace.storage.txn_index import AbortedTxn, TxnIndex

_log = logging.getLogger(__name__)


def replay(
    header: BatchHeader,
    batch: Buffer | None,
    producers: Producers,
    epochs: EpochCache,
    aborted: TxnIndex,
) -> None:
    """Apply one batch; its bytes are needed only of control batches."""
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
    header: BatchHeader, batch: Buffer, producers: Producers, aborted: TxnIndex
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
    known = aborted.aborted
    if (
        completed is not None
        and is_abort
        and (not known or known[-1].last_offset < completed.last_offset)
    ):
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
    """The producers at the end of a log: the newest sound snapshot and the batches since then."""
    producers = Producers()
    start = 0
    for offset in reversed(snapshots.offsets(present)):
        if offset > snapshot_offset_max:
            continue
        try:
            restored = snapshots.read(fs, folder, offset)
        except (snapshots.CorruptSnapshot, OSError) as error:
            _log.warning("%s: the snapshot at %d is left out: %s", folder, offset, error)
            continue
        for producer in restored:
            producers.restore(producer)
        start = offset
        break
    replay_from(segments, start, producers, epochs)
    return producers


def replay_from(
    segments: list[Segment], offset: int, producers: Producers, epochs: EpochCache
) -> None:
    """Apply all batches from an offset on; what lies behind damage in a segment is left out."""
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
            continue
        try:
            _replay_segment(segment, offset, producers, epochs)
        except (BadBatch, InvalidBatch) as error:
            _log.error("%s: producer state is incomplete: %s", segment.file.path, error)


def _replay_segment(
    segment: Segment, offset: int, producers: Producers, epochs: EpochCache
) -> None:
    start = 0
    if offset > segment.base_offset:
        found = segment.locate(offset)
        if found is None:
            return
        start = found[0]
    file = segment.file
    for position, header in iter_headers(file, start, segment.size, chunk_bytes=SCAN_CHUNK_BYTES):
        batch = file.pread(header.size, position) if header.is_control else None
        replay(header, batch, producers, epochs, segment.aborted)

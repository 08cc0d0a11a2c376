"""Cleaning of one log, file to file: reads segments, writes `*.cleaned` ones, changes nothing else.

Made to run in a worker process: its arguments and its result are plain values, and a worker that
dies leaves only `*.cleaned` files, which the next start and the next cleaning remove.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from headrace.protocol.batch import BatchHeader
from headrace.storage import names
from headrace.storage.cleaner.batch_filter import BatchFilter
from headrace.storage.cleaner.batches import payload_of
from headrace.storage.cleaner.offset_map import OffsetMap
from headrace.storage.cleaner.options import (
    CleanedGroup,
    CleanOptions,
    CleanResult,
    CleanStats,
    SegmentFacts,
)
from headrace.storage.cleaner.output import CleanedSegment, remove_cleaned
from headrace.storage.cleaner.raw_records import raw_records
from headrace.storage.cleaner.transactions import CleanedTransactions
from headrace.storage.files import FileSystem
from headrace.storage.log.scan import BadBatch, iter_checked
from headrace.storage.log.sparse_index import CorruptIndex
from headrace.storage.log.txn_index import AbortedTxn, TxnIndex
from headrace.storage.os_files import OsFileSystem

RELATIVE_OFFSET_MAX = 2**31 - 1


class Uncleanable(Exception):
    """The log cannot be cleaned as it is; a retry would fail the same way."""


def clean(
    folder: str,
    segments: Sequence[SegmentFacts],
    options: CleanOptions,
    fs: FileSystem | None = None,
) -> CleanResult:
    """Clean segments, in offset order, into synced `*.cleaned` files that wait to be swapped in.

    `segments` are all that lie below `options.first_uncleanable_offset`. Raises Uncleanable or
    OSError, and then leaves nothing behind; the log itself is never touched.
    """
    files = fs or OsFileSystem()
    remove_cleaned(files, folder)
    try:
        run = _Run(files, folder, segments, options)
        try:
            return run.clean()
        finally:
            run.offsets.close()
    except (BadBatch, CorruptIndex, ValueError) as error:
        remove_cleaned(files, folder)
        raise Uncleanable(str(error)) from error
    except BaseException:
        remove_cleaned(files, folder)
        raise


class _Run:
    """One cleaning of one log."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        segments: Sequence[SegmentFacts],
        options: CleanOptions,
    ):
        self.fs = fs
        self.folder = folder
        self.segments = segments
        self.options = options
        self.stats = CleanStats()
        self.offsets = OffsetMap(
            options.dedupe_buffer_bytes,
            load_factor=options.load_factor,
            keys_max=options.first_uncleanable_offset - options.first_dirty_offset,
        )
        self._throttle = _Throttle(options.io_bytes_per_second)
        self._aborted = self._read_aborted()

    def clean(self) -> CleanResult:
        self._map_keys()
        if self.offsets.full and self.offsets.latest_offset < self.options.first_dirty_offset:
            raise ValueError(
                f"one batch has more keys than the offset map holds ({self.offsets.entries}); "
                f"raise log.cleaner.dedupe.buffer.size"
            )
        end_offset = self.offsets.latest_offset + 1
        self.stats.map_utilization = self.offsets.utilization
        groups = group_segments(
            [segment for segment in self.segments if segment.base_offset < end_offset],
            segment_bytes=self.options.segment_bytes,
            index_bytes=self.options.segment_index_bytes,
        )
        transactions = CleanedTransactions(self._aborted, self._start_offset)
        return CleanResult(
            tuple(self._clean_group(group, transactions) for group in groups),
            end_offset,
            self.stats,
        )

    @property
    def _start_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    def _map_keys(self) -> None:
        """Fill the offset map from the dirty part; stop at a batch boundary when it is full."""
        options, offsets = self.options, self.offsets
        offsets.latest_offset = options.first_dirty_offset - 1
        transactions = CleanedTransactions(self._aborted, options.first_dirty_offset)
        for segment in self.segments:
            if segment.next_offset <= options.first_dirty_offset:
                continue
            for header, batch in self._batches(segment):
                if header.last_offset < options.first_dirty_offset:
                    continue
                if not self._map_batch(header, batch, transactions):
                    return
                offsets.latest_offset = header.last_offset
            # Offsets that earlier cleanings removed at the end of the segment count as clean.
            offsets.latest_offset = segment.next_offset - 1

    def _map_batch(
        self, header: BatchHeader, batch: memoryview, transactions: CleanedTransactions
    ) -> bool:
        """Put the keys of a batch into the map; False when they do not all fit."""
        if header.is_control:
            # The type of a marker does not matter here: its transaction is over.
            transactions.on_abort(header.producer_id, header.last_offset)
            return True
        if header.is_transactional and transactions.on_data(header.producer_id, header.last_offset):
            return True
        base_offset = header.base_offset
        put = self.offsets.put
        try:
            payload = payload_of(batch, header, self.options.unpacked_bytes_max)
            # A malformed batch stays as it is, so none of its keys may count.
            records = list(raw_records(payload, header.record_count))
        except ValueError:
            return True
        return all(
            put(record.key, base_offset + record.offset_delta)
            for record in records
            if record.key is not None
        )

    def _clean_group(
        self, group: Sequence[SegmentFacts], transactions: CleanedTransactions
    ) -> CleanedGroup:
        options, throttle = self.options, self._throttle
        base_offset = group[0].base_offset
        output = CleanedSegment(self.fs, self.folder, base_offset, options.index_interval_bytes)
        keep = BatchFilter(
            self.offsets, transactions, options, self.stats, output.add_aborted
        ).apply
        for segment in group:
            for header, batch in self._batches(segment):
                kept = keep(batch, header)
                if kept is not None:
                    output.append(kept)
                    throttle.spend(len(kept))
            self.stats.bytes_read += segment.log_bytes
        output.finish()
        return CleanedGroup(base_offset, tuple(segment.base_offset for segment in group))

    def _batches(self, segment: SegmentFacts) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Checked batches; raises for a wrong CRC, which a rewrite would replace by a good one."""
        path = os.path.join(self.folder, names.offset_name(segment.base_offset, names.LOG))
        file = self.fs.open(path, size=segment.log_bytes)
        try:
            for _, header, batch in iter_checked(
                file, 0, segment.log_bytes, self.options.io_buffer_bytes
            ):
                self._throttle.spend(len(batch))
                yield header, batch
        finally:
            file.close()

    def _read_aborted(self) -> list[AbortedTxn]:
        """Aborted transactions of the whole folder: a marker may be beyond the cleaned part."""
        aborted: list[AbortedTxn] = []
        for name in self.fs.list(self.folder):
            if names.parse_offset(name, names.TXN_INDEX) is not None:
                path = os.path.join(self.folder, name)
                aborted += TxnIndex(self.fs, path, self.fs.size(path)).aborted
        return aborted


class _Throttle:
    """Limits the rate of reads and writes together by sleeping, which only a worker may do."""

    def __init__(self, bytes_per_second: float):
        self._bytes_per_second = bytes_per_second
        self._started_s = time.monotonic()
        self._bytes = 0

    def spend(self, count_bytes: int) -> None:
        self._bytes += count_bytes
        ahead_s = self._bytes / self._bytes_per_second - (time.monotonic() - self._started_s)
        if ahead_s > 0:
            time.sleep(ahead_s)


def group_segments(
    segments: Sequence[SegmentFacts], *, segment_bytes: int, index_bytes: int
) -> list[list[SegmentFacts]]:
    """Group neighbouring segments that fit into one, so that logs do not end as many small files.

    A group fits even if nothing is removed from it.
    """
    groups: list[list[SegmentFacts]] = []
    log_sum = index_sum = time_index_sum = 0
    for segment in segments:
        log_sum += segment.log_bytes
        index_sum += segment.index_bytes
        time_index_sum += segment.time_index_bytes
        fits = (
            bool(groups)
            and log_sum <= segment_bytes
            and index_sum <= index_bytes
            and time_index_sum <= index_bytes
            # Indexes have offsets relative to the base in 31 bits. An empty segment adds none, so
            # several of them over a long gap still become one.
            and (
                segment.log_bytes == 0
                or segment.next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_sum = segment.log_bytes
            index_sum = segment.index_bytes
            time_index_sum = segment.time_index_bytes
    return groups

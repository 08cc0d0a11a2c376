"""A partition's folder written batch by batch, and read back after cleaning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.protocol.batch import BatchHeader, build_batch, check_batch, iter_records
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.records import Record
from headrace.storage import names
from headrace.storage.cleaner.clean import clean
from headrace.storage.cleaner.options import CleanOptions, CleanResult, LastRecord, SegmentFacts
from headrace.storage.log.scan import iter_checked
from headrace.storage.log.segment import Segment
from headrace.storage.log.txn_index import AbortedTxn, TxnIndex
from headrace.storage.os_files import OsFileSystem

Pair = tuple[str, str | None]

START_MS = 1_700_000_000_000


class Folder:
    """Segments on disk as a broker would have written them."""

    def __init__(self, path: Path, *, index_interval_bytes: int = 256):
        self.path = str(path)
        self.fs = OsFileSystem()
        self.fs.mkdir(self.path)
        self.index_interval_bytes = index_interval_bytes
        self.next_offset = 0
        self.bases: list[int] = []
        self._segment: Segment | None = None
        self._transactions: dict[int, int] = {}

    def append(
        self,
        pairs: Sequence[Pair],
        *,
        codec: int = 0,
        timestamp: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = 0,
        base_sequence: int = -1,
        transactional: bool = False,
        timestamp_type: int = 0,
    ) -> int:
        """One batch of (key, value) records; returns its base offset."""
        base_offset = self.next_offset
        first_ms = START_MS + base_offset if timestamp is None else timestamp
        if transactional:
            self._transactions.setdefault(producer_id, base_offset)
        self.append_raw(
            build_batch(
                [
                    Record(
                        base_offset + index,
                        first_ms + index,
                        key.encode(),
                        None if value is None else value.encode(),
                        (("h", key.encode()),),
                    )
                    for index, (key, value) in enumerate(pairs)
                ],
                base_offset=base_offset,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch if producer_id >= 0 else -1,
                base_sequence=base_sequence,
                transactional=transactional,
                leader_epoch=7,
                timestamp_type=timestamp_type,
            )
        )
        return base_offset

    def append_raw(self, batch: bytes | bytearray) -> None:
        """One ready-made batch, whose base offset is the next one or beyond it."""
        header = check_batch(batch, 0, len(batch))
        segment = self._segment or self.roll()
        segment.record(header.last_offset, segment.size, len(batch), header.max_timestamp)
        segment.file.append(batch)
        self.next_offset = header.next_offset

    def end(self, producer_id: int, control: ControlType, *, epoch: int = 0) -> int:
        """End the producer's transaction; returns the marker's offset."""
        offset = self.next_offset
        self.append_raw(
            build_marker(
                EndTransactionMarker(control, 0),
                producer_id=producer_id,
                producer_epoch=epoch,
                timestamp=START_MS + offset,
                base_offset=offset,
                leader_epoch=7,
            )
        )
        first_offset = self._transactions.pop(producer_id, None)
        if control is ControlType.ABORT and first_offset is not None:
            assert self._segment is not None
            self._segment.txn_index.append(
                AbortedTxn(producer_id, first_offset, offset, offset + 1)
            )
        return offset

    def commit(self, producer_id: int) -> int:
        return self.end(producer_id, ControlType.COMMIT)

    def abort(self, producer_id: int) -> int:
        return self.end(producer_id, ControlType.ABORT)

    def roll(self) -> Segment:
        """Start a new segment at the next offset."""
        self.seal()
        self._segment = Segment.create(self.fs, self.path, self.next_offset, START_MS)
        self._segment.index_interval_bytes = self.index_interval_bytes
        if self.next_offset not in self.bases:
            self.bases.append(self.next_offset)
        return self._segment

    def seal(self) -> None:
        if self._segment is not None:
            self._segment.seal()
            self._segment.close()
            self._segment = None

    def path_of(self, base_offset: int, suffix: str) -> str:
        return os.path.join(self.path, names.offset_name(base_offset, suffix))

    def facts(self) -> list[SegmentFacts]:
        return [
            SegmentFacts(
                base,
                next_offset,
                os.path.getsize(self.path_of(base, names.LOG)),
                os.path.getsize(self.path_of(base, names.OFFSET_INDEX)),
                os.path.getsize(self.path_of(base, names.TIME_INDEX)),
            )
            for base, next_offset in zip(
                self.bases, [*self.bases[1:], self.next_offset], strict=True
            )
        ]

    def clean(
        self,
        *,
        first_dirty_offset: int = 0,
        now_ms: int = START_MS,
        delete_retention_ms: int = 1000,
        segment_bytes: int = 1 << 30,
        dedupe_buffer_bytes: int = 1 << 20,
        last_records: dict[int, LastRecord] | None = None,
        swap: bool = True,
    ) -> CleanResult:
        """Clean all segments written so far and put the result in their place."""
        self.seal()
        result = clean(
            self.path,
            self.facts(),
            CleanOptions(
                first_dirty_offset=first_dirty_offset,
                first_uncleanable_offset=self.next_offset,
                now_ms=now_ms,
                delete_retention_ms=delete_retention_ms,
                segment_bytes=segment_bytes,
                segment_index_bytes=10 << 20,
                index_interval_bytes=self.index_interval_bytes,
                last_records=last_records or {},
                dedupe_buffer_bytes=dedupe_buffer_bytes,
            ),
        )
        if swap:
            self.swap(result)
        return result

    def swap(self, result: CleanResult) -> None:
        for group in result.groups:
            for base in group.sources:
                for suffix in names.SEGMENT_SUFFIXES:
                    path = self.path_of(base, suffix)
                    if os.path.exists(path):
                        os.unlink(path)
            for suffix in names.SEGMENT_SUFFIXES:
                path = self.path_of(group.base_offset, suffix)
                if os.path.exists(path + names.CLEANED):
                    os.rename(path + names.CLEANED, path)
            self.bases = [
                base
                for base in self.bases
                if base == group.base_offset or base not in group.sources
            ]

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for base in self.bases:
            path = self.path_of(base, names.LOG)
            file = self.fs.open(path, size=os.path.getsize(path))
            for _, header, batch in iter_checked(file, 0, file.size):
                yield header, batch

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self.batches()]

    def records(self) -> list[Record]:
        """All data records, aborted ones too."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in iter_records(batch)
        ]

    def pairs(self) -> list[tuple[int, str, str | None]]:
        return [
            (
                record.offset,
                (record.key or b"").decode(),
                None if record.value is None else record.value.decode(),
            )
            for record in self.records()
        ]

    def aborted(self) -> list[AbortedTxn]:
        rows: list[AbortedTxn] = []
        for base in self.bases:
            path = self.path_of(base, names.TXN_INDEX)
            if os.path.exists(path):
                rows += TxnIndex(self.fs, path, os.path.getsize(path)).aborted
        return rows

"""Committed batches and records out of fetched ones, without markers and aborted transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.protocol.api.fetch import PartitionData
from headrace.protocol.batch import BatchHeader, iter_headers, iter_records
from headrace.protocol.control import ControlType, parse_marker
from headrace.protocol.records import Record

Buffer = bytes | bytearray | memoryview
# Where a batch begins in a buffer, and its header.
PlacedBatch = tuple[int, BatchHeader]
# Producer id and first offset of an aborted transaction.
Aborted = tuple[int, int]


class CommittedRecords(NamedTuple):
    """Committed records of a partition; there are no others before `next_offset`."""

    records: list[Record]
    next_offset: int


def read_committed_records(data: PartitionData, start: int, records_max: int) -> CommittedRecords:
    """The first committed records at `start` or later in a leader's answer."""
    buffer = data.records
    if not isinstance(buffer, Buffer):
        return CommittedRecords([], start)
    batches = list(iter_headers(buffer))
    records: list[Record] = []
    for position, _ in committed_batches(buffer, batches, aborted_in(data)):
        for record in iter_records(buffer, position):
            if record.offset >= start:
                records.append(record)
                if len(records) >= records_max:
                    return CommittedRecords(records, record.offset + 1)
    return CommittedRecords(records, max([start, *(header.next_offset for _, header in batches)]))


def committed_batches(
    buffer: Buffer, batches: Iterable[PlacedBatch], aborted: Iterable[Aborted]
) -> Iterator[PlacedBatch]:
    """The batches without markers and without those of aborted transactions."""
    ahead = sorted(aborted, key=lambda row: row[1], reverse=True)
    open_aborted: set[int] = set()
    for position, header in batches:
        while ahead and ahead[-1][1] <= header.last_offset:
            open_aborted.add(ahead.pop()[0])
        if header.is_control:
            marker = parse_marker(buffer, position)
            if marker is not None and marker.control_type is ControlType.ABORT:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            yield position, header


def aborted_in(data: PartitionData) -> list[Aborted]:
    """The aborted transactions among the batches of an answer."""
    return [(row.producer_id, row.first_offset) for row in data.aborted_transactions or ()]

"""Committed records out of fetched batches: markers and aborted transactions are passed over."""

from __future__ import annotations

from typing import NamedTuple

from headrace.protocol.api.fetch import AbortedTransaction, PartitionData
from headrace.protocol.batch import iter_headers, iter_records
from headrace.protocol.control import ControlType, parse_marker
from headrace.protocol.records import Record


class Stretch(NamedTuple):
    """Records of a partition, and the offset up to which it is known that there are no others."""

    records: list[Record]
    next_offset: int


def read_stretch(data: PartitionData, place: int, records_max: int) -> Stretch:
    """The first committed records from a place on in what a leader has answered."""
    buffer = data.records
    if not isinstance(buffer, bytes | bytearray | memoryview):
        return Stretch([], place)
    aborted = sorted(data.aborted_transactions or [], key=_first_offset)
    open_aborted: set[int] = set()
    records: list[Record] = []
    for position, header in iter_headers(buffer):
        while aborted and aborted[0].first_offset <= header.last_offset:
            open_aborted.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = parse_marker(buffer, position)
            if marker is not None and marker.control_type is ControlType.ABORT:
                open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            for record in iter_records(buffer, position):
                if record.offset >= place:
                    records.append(record)
                    if len(records) >= records_max:
                        return Stretch(records, record.offset + 1)
        place = max(place, header.next_offset)
    return Stretch(records, place)


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset

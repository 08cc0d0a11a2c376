"""Whoever asks for the end of a log sees what was acknowledged before, with acks=1 too.

The topic is never synced by its timer, so that only the question itself can start the sync.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.wire import Wire, batch_of, records_of

from headrace.protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.batch import read_header
from headrace.protocol.errors import ErrorCode
from headrace.testing import BrokerThread

LATEST, MAX_TIMESTAMP = -1, -3
LIST_OFFSETS_VERSION, DELETE_RECORDS_VERSION = 7, 2
PARTITIONS = 3


@pytest.fixture
def wire(broker: BrokerThread) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t", PARTITIONS, flush_ms="9223372036854775807")
        yield wire


def ends(wire: Wire, timestamp: int = LATEST, isolation_level: int = 0) -> list[int]:
    """The answer of ListOffsets for every partition."""
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index in range(PARTITIONS)
    ]
    request = ListOffsetsRequest(
        isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=asked)]
    )
    answer = wire.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
    found = answer.topics[0].partitions
    assert {row.error_code for row in found} == {ErrorCode.NONE}
    return [row.offset for row in sorted(found, key=lambda row: row.partition_index)]


def delete_before(wire: Wire, offset: int) -> tuple[int, int]:
    """The error and the new start of partition 0."""
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=10_000
    )
    answer = wire.call(request, DeleteRecordsResponse, DELETE_RECORDS_VERSION)
    row = answer.topics[0].partitions[0]
    return row.error_code, row.low_watermark


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_end_is_behind_every_acknowledged_record(wire: Wire, isolation_level: int) -> None:
    for count in range(1, 6):
        wire.produce("t", batch_of(b"v"), acks=1)
        assert ends(wire, isolation_level=isolation_level) == [count, 0, 0]


def test_a_time_finds_an_acknowledged_record(wire: Wire) -> None:
    wire.produce("t", batch_of(b"v"), acks=1)
    assert ends(wire, timestamp=0)[0] == 0
    wire.produce("t", batch_of(b"w"), acks=1)
    assert ends(wire, timestamp=MAX_TIMESTAMP)[0] >= 0


def test_a_fetch_that_does_not_wait_returns_an_acknowledged_record(wire: Wire) -> None:
    for offset in range(5):
        wire.produce("t", batch_of(b"v"), acks=1)
        found = records_of(wire.fetch("t", offset, max_wait_ms=0))
        assert read_header(found, 0).base_offset == offset


def test_a_fetch_that_does_not_wait_returns_at_once_when_all_is_read(wire: Wire) -> None:
    wire.produce("t", batch_of(b"v"), acks=1)
    assert len(records_of(wire.fetch("t", 1, max_wait_ms=0))) == 0


def test_acknowledged_records_can_be_deleted(wire: Wire) -> None:
    wire.produce("t", batch_of(b"v"), acks=1)
    assert delete_before(wire, -1) == (ErrorCode.NONE, 1)
    wire.produce("t", batch_of(b"v"), acks=1)
    assert delete_before(wire, 2) == (ErrorCode.NONE, 2)
    assert delete_before(wire, 3)[0] == ErrorCode.OFFSET_OUT_OF_RANGE

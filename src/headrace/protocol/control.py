"""Control batches: the markers that end a transaction in a partition's log."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.protocol.batch import InvalidBatch, build_batch, iter_records
from headrace.protocol.primitives import Buffer
from headrace.protocol.records import Record

_key = Struct(">hh")
_value = Struct(">hi")


class ControlType(IntEnum):
    """What a control record means; the second half of its key."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    control_type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the control batch that a transaction coordinator writes to a partition."""
    key = _key.pack(0, marker.control_type)
    value = _value.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def parse_marker(buf: Buffer, pos: int = 0) -> EndTransactionMarker | None:
    """Read the marker from a control batch; None for a control record of another kind."""
    record = next(iter_records(buf, pos), None)
    if record is None:
        # Compaction keeps the header of a marker when it drops the marker itself.
        return None
    try:
        _, control_type = _key.unpack_from(record.key or b"")
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, coordinator_epoch = _value.unpack_from(record.value or b"")
    except StructError as error:
        raise InvalidBatch(f"a transaction marker is malformed: {error}") from error
    return EndTransactionMarker(ControlType(control_type), coordinator_epoch)

"""Markers that end transactions."""

from __future__ import annotations

import pytest

from headrace.protocol.batch import InvalidBatch, build_batch, check_batch, iter_records
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker, parse_marker
from headrace.protocol.records import Record


@pytest.mark.parametrize("control_type", list(ControlType))
def test_a_marker_comes_back_from_its_batch(control_type: ControlType) -> None:
    marker = EndTransactionMarker(control_type, coordinator_epoch=12)
    batch = build_marker(
        marker, producer_id=7, producer_epoch=3, timestamp=1_000, base_offset=40, leader_epoch=2
    )
    header = check_batch(batch, 0, len(batch))
    assert parse_marker(batch) == marker
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (40, 40, 2)


def test_a_marker_has_the_bytes_that_kafka_gives_it() -> None:
    batch = build_marker(
        EndTransactionMarker(ControlType.COMMIT, 5), producer_id=1, producer_epoch=0, timestamp=0
    )
    (record,) = iter_records(batch)
    assert record.key == bytes.fromhex("0000 0001")
    assert record.value == bytes.fromhex("0000 00000005")


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([Record(0, 0, key, value)], control=True, transactional=True)


def test_control_records_of_other_kinds_are_no_markers() -> None:
    assert parse_marker(control_batch(bytes.fromhex("0000 0002"), b"")) is None


def test_a_marker_that_compaction_has_emptied_is_none() -> None:
    assert parse_marker(build_batch([], last_offset=0, control=True)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"\x00\x00\x00", b""), (bytes(4), None), (bytes(4), bytes(5))],
)
def test_a_malformed_marker_is_invalid(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidBatch, match="malformed"):
        parse_marker(control_batch(key, value))


def test_a_newer_marker_may_carry_more() -> None:
    batch = control_batch(bytes.fromhex("0001 0001 ff"), bytes.fromhex("0001 00000009 ffff"))
    assert parse_marker(batch) == EndTransactionMarker(ControlType.COMMIT, 9)

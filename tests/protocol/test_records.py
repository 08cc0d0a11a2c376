"""Records after unpacking: what is refused and how small the varints are."""

from __future__ import annotations

import pytest

from headrace.protocol.primitives import ProtocolError
from headrace.protocol.records import Record, decode_records, encode_records


def read(data: bytes, count: int = 1) -> list[Record]:
    return list(decode_records(data, count, 0, 0, None))


def record(body: bytes) -> bytes:
    """A record with the length that its body has."""
    return bytes([len(body) << 1]) + body


# attributes, timestamp delta, offset delta, key null, value null, no headers
EMPTY = b"\x00\x00\x00\x01\x01\x00"


def test_the_smallest_record_takes_seven_bytes() -> None:
    data, count = encode_records([Record(0, 0, None, None)], 0, 0)
    assert (bytes(data), count) == (record(EMPTY), 1)
    assert read(record(EMPTY)) == [Record(0, 0, None, None)]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "malformed"),
        (b"\x01", "longer than its batch"),
        (b"\x80", "malformed"),
        (b"\x80\x80\x80\x80\x80\x00", "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\x7f", "exceeds"),
        (b"\x0e" + EMPTY, "longer than its batch"),
        (b"\x0a" + EMPTY, "does not end where"),
        (record(EMPTY + b"\x00"), "does not end where"),
        (record(b"\x00\x00\x01\x01\x01\x00"), "do not grow"),
        (record(b"\x00\x00\x00\x03\x01\x00"), "is negative"),
        (record(b"\x00\x00\x00\x08abc"), "malformed"),
        (record(b"\x00\x00\x00\x08abc") + record(EMPTY), "does not end where"),
        (record(b"\x00\x00\x00\x01\x01\x01"), "more headers than bytes"),
        (record(b"\x00\x00\x00\x01\x01\x7e"), "more headers than bytes"),
        (record(b"\x00\x00\x00\x01\x01\x02\x01\x01"), "must not be null"),
        (record(b"\x00\x00\x00\x01\x01\x02\x02\xff\x01"), "malformed"),
        (record(b"\x00" + b"\xff" * 10 + b"\x01\x00\x01\x01\x00"), "longer than 10 bytes"),
        (record(b"\x00" + b"\xff" * 9 + b"\x03\x00\x01\x01\x00"), "exceeds"),
    ],
)
def test_a_malformed_record_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        read(data)


def test_a_timestamp_may_use_all_ten_bytes() -> None:
    first = Record(0, 0, None, None)
    last = Record(1, -(2**63), None, None)
    data, count = encode_records([first, last], 0, 0)
    assert read(bytes(data), count) == [first, last]


def test_repeated_offsets_are_refused() -> None:
    with pytest.raises(ProtocolError, match="do not grow"):
        read(record(EMPTY) * 2, 2)


def test_a_huge_count_over_few_bytes_ends_at_once() -> None:
    with pytest.raises(ProtocolError):
        read(record(EMPTY), 2**31 - 1)


def test_log_append_time_replaces_every_timestamp() -> None:
    data, count = encode_records([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")], 0, 5)
    stamped = decode_records(bytes(data), count, 100, 5, 777)
    assert [(r.offset, r.timestamp) for r in stamped] == [(100, 777), (101, 777)]

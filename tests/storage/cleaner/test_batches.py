"""Recompression and the walk over raw records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.batch import (
    HEADER_BYTES,
    InvalidBatch,
    build_batch,
    check_batch,
    iter_records,
    seal,
)
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.records import Record, encode_records
from headrace.storage.cleaner.batches import recompress
from headrace.storage.cleaner.raw_records import raw_records, with_timestamp_delta

CODECS = range(5)

blobs = st.one_of(st.none(), st.binary(max_size=300))
record_lists = st.lists(
    st.tuples(
        st.integers(0, 10**13),
        blobs,
        blobs,
        st.lists(st.tuples(st.text(max_size=5), blobs), max_size=2),
    ),
    min_size=1,
    max_size=8,
).map(lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)])


@settings(deadline=None)
@given(record_lists, st.sampled_from(CODECS), st.sampled_from(CODECS))
def test_the_records_stay_the_same_under_another_codec(
    records: list[Record], before: int, after: int
) -> None:
    batch = build_batch(
        records, codec=before, producer_id=7, producer_epoch=1, base_sequence=3, leader_epoch=2
    )
    again = recompress(batch, after)
    header = check_batch(again, 0, len(again))
    original = check_batch(batch, 0, len(batch))
    assert header.codec == after
    assert list(iter_records(again)) == list(iter_records(batch))
    assert header._replace(batch_length=0, crc=0, attributes=0) == original._replace(
        batch_length=0, crc=0, attributes=0
    )
    assert header.attributes & ~7 == original.attributes & ~7


def test_a_batch_that_lies_about_its_records_is_refused() -> None:
    good = build_batch([Record(0, 1, b"a", b"b"), Record(1, 1, b"c", b"d")])
    for position in range(HEADER_BYTES - 4, HEADER_BYTES + 4):
        bad = bytearray(good)
        bad[position] ^= 0x10
        seal(bad, 0)
        if not unpacks(bad):
            with pytest.raises(InvalidBatch):
                recompress(bad, 4)


def unpacks(batch: bytearray) -> bool:
    try:
        list(iter_records(batch))
    except InvalidBatch:
        return False
    return True


def test_a_gap_between_the_records_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="has offset delta 2"):
        recompress(build_batch([Record(0, 1, b"a", b"b"), Record(2, 1, b"c", b"d")]), 1)


def test_a_bomb_is_refused_within_its_bound() -> None:
    bomb = build_batch([Record(0, 1, b"a", bytes(10 << 20))], codec=4)
    with pytest.raises(InvalidBatch, match="unpacks to more"):
        recompress(bomb, 1, limit_bytes=1 << 20)


@settings(deadline=None)
@given(record_lists)
def test_raw_records_agree_with_the_decoded_ones(records: list[Record]) -> None:
    payload, count = encode_records(records, 0, 0)
    raw = list(raw_records(bytes(payload), count))
    assert [(r.offset_delta, r.timestamp_delta, r.key, r.has_value) for r in raw] == [
        (r.offset, r.timestamp, r.key, r.value is not None) for r in records
    ]
    assert b"".join(payload[r.start : r.end] for r in raw) == payload


@settings(deadline=None)
@given(record_lists, st.integers(-(2**62), 2**62))
def test_a_timestamp_delta_can_be_changed_in_place(records: list[Record], delta: int) -> None:
    payload, count = encode_records(records, 0, 0)
    changed = b"".join(
        with_timestamp_delta(bytes(payload), record, delta)
        for record in raw_records(bytes(payload), count)
    )
    expected, _ = encode_records([r._replace(timestamp=delta) for r in records], 0, 0)
    assert changed == expected


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_are_records_or_a_protocol_error(data: bytes, count: int) -> None:
    try:
        walked = list(raw_records(data, count))
    except ProtocolError:
        return
    assert len(walked) == count

"""Record batches: header, checks, changes in place, records, and bytes that lie."""

from __future__ import annotations

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    assign,
    build_batch,
    check_batch,
    check_produced,
    iter_headers,
    iter_records,
    read_header,
    restamp,
    seal,
)
from headrace.protocol.compression import Codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record

CODECS = list(Codec)
RECORDS = [
    Record(0, 1_000, b"k", b"v" * 300, [("trace", b"1"), ("empty", None)]),
    Record(1, 999, None, b"value", []),
    Record(2, 1_005, b"", None, [("é", b"")]),
]


def patched(batch: bytearray, at: int, field: bytes) -> bytearray:
    """The batch with a field overwritten and a CRC that agrees."""
    batch[at : at + len(field)] = field
    batch[CRC_AT : CRC_AT + 4] = crc32c(bytes(batch[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return batch


def plain(records: list[Record]) -> list[Record]:
    return [record._replace(headers=list(record.headers)) for record in records]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_from_a_batch(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    header = check_batch(batch, 0, len(batch))
    assert plain(list(iter_records(batch))) == RECORDS
    assert header.codec == codec
    assert header.record_count == 3
    assert header.base_timestamp == 1_000
    assert header.max_timestamp == 1_005
    assert header.size == len(batch)


_records = st.lists(
    st.tuples(
        st.integers(-(2**62), 2**62),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(_records, st.sampled_from(CODECS), st.integers(0, 2**62), st.integers(1, 1000))
def test_any_records_come_back_from_a_batch(
    drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    base_offset: int,
    gap: int,
) -> None:
    records = [Record(base_offset + i * gap, *values) for i, values in enumerate(drawn)]
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    assert check_batch(batch, 0, len(batch)).last_offset == records[-1].offset
    assert plain(list(iter_records(memoryview(batch)))) == records


def test_header_says_what_the_batch_was_built_with() -> None:
    batch = build_batch(
        [Record(70, 5, b"k", b"v"), Record(72, 6, b"k", b"v")],
        base_offset=70,
        timestamp_type=1,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
        leader_epoch=3,
    )
    header = check_batch(batch, 0, len(batch))
    assert header == BatchHeader(
        base_offset=70,
        batch_length=len(batch) - 12,
        leader_epoch=3,
        magic=2,
        crc=header.crc,
        attributes=0x18,
        last_offset_delta=2,
        base_timestamp=5,
        max_timestamp=6,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
        record_count=2,
    )
    assert header.is_transactional
    assert header.log_append_time
    assert not header.is_control
    assert (header.last_offset, header.next_offset, header.last_sequence) == (72, 73, 42)


def test_sequences_wrap_to_zero() -> None:
    batch = build_batch(
        [Record(i, 0, None, b"") for i in range(3)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=2**31 - 2,
    )
    assert read_header(batch).last_sequence == 0


def test_a_place_in_the_log_is_assigned_outside_the_crc() -> None:
    batch = build_batch(RECORDS)
    before = bytes(batch[MAGIC_AT:])
    assign(memoryview(batch), 0, 2**40, 77)
    assert batch[MAGIC_AT:] == before
    header = check_batch(batch, 0, len(batch))
    assert (header.base_offset, header.leader_epoch) == (2**40, 77)
    assert [record.offset for record in iter_records(batch)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_restamped_records_all_have_the_append_time() -> None:
    batch = build_batch(RECORDS)
    restamp(batch, 0, 123_456)
    header = check_batch(batch, 0, len(batch))
    assert header.log_append_time
    assert header.max_timestamp == 123_456
    assert {record.timestamp for record in iter_records(batch)} == {123_456}


def test_batches_in_the_middle_of_a_buffer_are_read_and_changed_there() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1])
    buffer = bytearray(b"\xaa" * 7 + first + second)
    at = 7 + len(first)
    assign(buffer, at, 3, 1)
    restamp(buffer, at, 55)
    assert check_batch(buffer, 7, at).record_count == 3
    assert check_batch(buffer, at, len(buffer)).base_offset == 3
    assert [record.timestamp for record in iter_records(buffer, at)] == [55]


def test_a_compacted_batch_keeps_its_end_even_when_empty() -> None:
    batch = build_batch([], base_offset=10, last_offset=14, producer_id=4, producer_epoch=0)
    header = check_batch(batch, 0, len(batch))
    assert (header.record_count, header.last_offset) == (0, 14)
    assert list(iter_records(batch)) == []
    with pytest.raises(ValueError, match="needs a last_offset"):
        build_batch([])


def test_the_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = build_batch([Record(0, 900, b"k", None)], delete_horizon_ms=5_000)
    assert read_header(batch).delete_horizon_ms == 5_000
    assert read_header(build_batch(RECORDS)).delete_horizon_ms is None
    assert [record.timestamp for record in iter_records(batch)] == [900]


def test_whole_batches_are_walked_and_a_cut_one_at_the_end_is_left_out() -> None:
    one, two = build_batch(RECORDS), build_batch(RECORDS[:1])
    data = bytes(one + two)
    assert [pos for pos, _ in iter_headers(data)] == [0, len(one)]
    assert [pos for pos, _ in iter_headers(data[:-1])] == [0]
    assert list(iter_headers(b"")) == []
    with pytest.raises(CorruptBatch):
        list(iter_headers(bytes(patched(bytearray(one), LENGTH_AT, bytes(4)))))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_cut_at_any_byte_is_not_one_whole_batch(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for end in range(len(batch)):
        with pytest.raises(InvalidBatch) as caught:
            check_batch(batch, 0, end)
        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_flipped_bit_in_any_covered_byte_is_found() -> None:
    batch = build_batch(RECORDS)
    for at in range(CRC_AT, len(batch)):
        for bit in range(8):
            batch[at] ^= 1 << bit
            with pytest.raises(CorruptBatch, match="CRC"):
                check_batch(batch, 0, len(batch))
            batch[at] ^= 1 << bit


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_other_magic_is_refused(magic: int) -> None:
    batch = patched(build_batch(RECORDS), MAGIC_AT, bytes([magic]))
    with pytest.raises(InvalidBatch if magic < 2 else CorruptBatch, match="magic"):
        check_batch(batch, 0, len(batch))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    batch = patched(build_batch(RECORDS), LENGTH_AT, length.to_bytes(4, "big", signed=True))
    with pytest.raises(CorruptBatch, match="length"):
        check_batch(batch, 0, len(batch))


@pytest.mark.parametrize(
    ("at", "field"),
    [
        (RECORD_COUNT_AT, b"\xff\xff\xff\xff"),
        (RECORD_COUNT_AT, b"\x00\x00\x00\x04"),
        (RECORD_COUNT_AT, b"\x7f\xff\xff\xff"),
        (LAST_OFFSET_DELTA_AT, b"\xff\xff\xff\xff"),
        (LAST_OFFSET_DELTA_AT, b"\x00\x00\x00\x01"),
    ],
)
def test_a_count_that_does_not_fit_its_offsets_is_invalid(at: int, field: bytes) -> None:
    batch = patched(build_batch(RECORDS), at, field)
    with pytest.raises(InvalidBatch, match="offsets") as caught:
        check_batch(batch, 0, len(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    batch = patched(build_batch(RECORDS), ATTRIBUTES_AT, codec.to_bytes(2, "big"))
    with pytest.raises(InvalidBatch) as caught:
        check_batch(batch, 0, len(batch))
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(InvalidBatch, match="not known"):
        list(iter_records(batch))


def test_producers_may_send_plain_and_idempotent_batches() -> None:
    check_produced(read_header(build_batch(RECORDS)))
    check_produced(
        read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0))
    )


@pytest.mark.parametrize(
    ("at", "field", "problem"),
    [
        (ATTRIBUTES_AT, b"\x00\x20", "control"),
        (ATTRIBUTES_AT, b"\x00\x10", "producer id"),
        (LAST_OFFSET_DELTA_AT, b"\x00\x00\x00\x07", "8 offsets"),
        (PRODUCER_ID_AT, bytes(8), "sequence -1"),
    ],
)
def test_producers_may_not_send(at: int, field: bytes, problem: str) -> None:
    batch = patched(build_batch(RECORDS), at, field)
    with pytest.raises(InvalidBatch, match=problem):
        check_produced(check_batch(batch, 0, len(batch)))


def test_a_producer_needs_an_epoch_and_a_sequence() -> None:
    batch = build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0)
    for at, width in ((PRODUCER_EPOCH_AT, 2), (BASE_SEQUENCE_AT, 4)):
        wrong = patched(bytearray(batch), at, b"\xff" * width)
        with pytest.raises(InvalidBatch, match="producer 1 sent"):
            check_produced(read_header(wrong))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_records_left_over_after_the_count_are_invalid(count: int) -> None:
    batch = patched(build_batch(RECORDS), RECORD_COUNT_AT, count.to_bytes(4, "big"))
    with pytest.raises(InvalidBatch, match="follow the last record"):
        list(iter_records(batch))


def test_fewer_records_than_the_count_are_invalid() -> None:
    batch = patched(build_batch(RECORDS), RECORD_COUNT_AT, b"\x00\x00\x00\x04")
    with pytest.raises(InvalidBatch, match="malformed"):
        list(iter_records(batch))


def test_an_offset_beyond_the_batch_is_invalid() -> None:
    batch = patched(build_batch(RECORDS), LAST_OFFSET_DELTA_AT, b"\x00\x00\x00\x01")
    with pytest.raises(InvalidBatch, match="beyond its batch"):
        list(iter_records(batch))


def test_records_are_decoded_lazily() -> None:
    batch = build_batch(RECORDS)
    batch[-1] = 0xFF
    records = iter_records(batch)
    assert next(records).value == b"v" * 300
    assert next(records).value == b"value"
    with pytest.raises(InvalidBatch):
        next(records)


@pytest.mark.parametrize("codec", CODECS)
def test_too_few_bytes_for_a_header_are_corrupt_for_readers_too(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    with pytest.raises(CorruptBatch):
        list(iter_records(batch[: HEADER_BYTES - 1]))


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
def test_a_batch_that_unpacks_to_too_much_is_refused(codec: Codec) -> None:
    batch = build_batch([Record(0, 0, None, bytes(3_000_000))], codec=codec)
    assert len(batch) < 200_000
    with pytest.raises(InvalidBatch, match="more than 1000000 bytes"):
        list(iter_records(batch, limit_bytes=1_000_000))
    assert len(list(iter_records(batch, limit_bytes=3_100_000))) == 1


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(CODECS), st.data())
def test_damaged_records_are_invalid_or_read(codec: Codec, data: st.DataObject) -> None:
    batch = build_batch(RECORDS, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(ATTRIBUTES_AT, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    seal(batch, 0)
    with suppress(InvalidBatch):
        check_batch(batch, 0, len(batch))
        list(iter_records(batch, limit_bytes=1_000_000))

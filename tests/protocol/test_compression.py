"""Codecs: both framings of snappy, bounds, and damaged data."""

from __future__ import annotations

import gzip
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.compression import (
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Codec,
    CompressionError,
    compress,
    decompress,
)

PACKED = [codec for codec in Codec if codec]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 1000, 3 * XERIAL_BLOCK_BYTES + 5])
def test_data_comes_back(codec: Codec, size: int) -> None:
    data = bytes(i * i % 251 for i in range(size))
    for given_as in (data, bytearray(data), memoryview(data)):
        assert bytes(decompress(codec, compress(codec, given_as), size)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, (None, 1, 9)),
        (Codec.LZ4, (None, 1, 9, 17)),
        (Codec.ZSTD, (None, -131072, -1, 3, 22)),
        (Codec.SNAPPY, (None, 5)),
        (Codec.NONE, (None, 5)),
    ],
)
def test_data_comes_back_from_every_level(codec: Codec, levels: tuple[int | None, ...]) -> None:
    data = bytes(i * i % 251 for i in range(5000))
    for level in levels:
        assert bytes(decompress(codec, compress(codec, data, level), len(data))) == data


@pytest.mark.parametrize("codec", PACKED)
def test_unpacking_stops_at_the_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(40 * MIB))
    with pytest.raises(CompressionError, match=f"more than {MIB} bytes"):
        decompress(codec, bomb, MIB)


def test_plain_data_is_bounded_too() -> None:
    with pytest.raises(CompressionError, match="more than 3 bytes"):
        decompress(Codec.NONE, b"four", 3)


@pytest.mark.parametrize("codec", PACKED)
def test_data_cut_at_any_byte_is_refused(codec: Codec) -> None:
    packed = bytes(compress(codec, b"some text, some more text, and some text again" * 3))
    whole = bytes(decompress(codec, packed, MIB))
    for end in range(len(packed)):
        try:
            got = bytes(decompress(codec, packed[:end], MIB))
        except CompressionError:
            continue
        # Framings without an end mark may lose whole blocks or a checksum, but make nothing up.
        assert whole.startswith(got)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PACKED), st.binary(max_size=80))
def test_noise_is_refused_or_bounded(codec: Codec, noise: bytes) -> None:
    with suppress(CompressionError):
        assert len(decompress(codec, noise, 1000)) <= 1000


def test_snappy_is_written_in_xerial_blocks() -> None:
    packed = bytes(compress(Codec.SNAPPY, bytes(XERIAL_BLOCK_BYTES + 1)))
    assert packed.startswith(XERIAL_HEADER)
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == XERIAL_BLOCK_BYTES


def test_raw_snappy_is_read() -> None:
    data = b"as librdkafka sends it " * 50
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MIB)) == data


def test_a_raw_snappy_claim_is_checked_before_room_is_made() -> None:
    with pytest.raises(CompressionError, match="more than 10 bytes"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", 10)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00", b"\x01"])
def test_a_xerial_block_with_a_wrong_length_is_refused(length: bytes) -> None:
    with pytest.raises(CompressionError, match="cut short"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + length + b"ab", MIB)


def test_xerial_blocks_share_one_bound() -> None:
    packed = compress(Codec.SNAPPY, bytes(3 * XERIAL_BLOCK_BYTES))
    with pytest.raises(CompressionError, match="more than"):
        decompress(Codec.SNAPPY, packed, 3 * XERIAL_BLOCK_BYTES - 1)


def test_lz4_blocks_stand_alone() -> None:
    flags = compress(Codec.LZ4, b"x" * 200_000)[4]
    assert flags & 0b0010_0000


def test_gzip_of_the_standard_library_is_read() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"abc" * 100), MIB)) == b"abc" * 100


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(CompressionError, match="not known"):
        compress(codec, b"")
    with pytest.raises(CompressionError, match="not known"):
        decompress(codec, b"", 10)

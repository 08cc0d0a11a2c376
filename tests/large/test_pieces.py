"""Values cut into pieces, made smaller and large again: the same bytes come out."""

from __future__ import annotations

import io
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.payloads import is_stream
from headrace.large.pieces import Decompressor, choose, compress, cut, pieces_of

some_pieces = st.lists(st.binary(max_size=50), max_size=10)


@given(some_pieces, st.integers(1, 40))
def test_a_cut_keeps_every_byte(pieces: list[bytes], size: int) -> None:
    found = list(cut(pieces, size))
    assert b"".join(found) == b"".join(pieces)
    assert all(len(piece) == size for piece in found[:-1])
    assert len(found) == max(1, -(-sum(map(len, pieces)) // size))


@given(some_pieces, st.sampled_from(["none", "gzip"]), st.integers(1, 100), st.integers(1, 100))
def test_what_was_compressed_comes_back(
    pieces: list[bytes], codec: str, step: int, size: int
) -> None:
    stored = io.BytesIO(b"".join(compress(pieces, codec)))
    unpacking = Decompressor(stored.read, codec, step)
    found = []
    while piece := unpacking.read(size):
        assert len(piece) <= size
        found.append(piece)
    assert b"".join(found) == b"".join(pieces)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_cut_or_longer_body_is_found_out(body: bytes, data: st.DataObject) -> None:
    stored = b"".join(compress([body], "gzip"))
    cut_at = data.draw(st.integers(0, len(stored) - 1))
    for wrong in (stored[:cut_at], stored + b"more"):
        unpacking = Decompressor(io.BytesIO(wrong).read, "gzip", 50)
        with pytest.raises(ValueError, match="compressed body"):
            list(iter(lambda: unpacking.read(1000), b""))  # noqa: B023


def test_a_bomb_is_unpacked_in_small_steps() -> None:
    bomb = zlib.compress(bytes(50_000_000), 9, 31)
    unpacking = Decompressor(io.BytesIO(bomb).read, "gzip", 1 << 20)
    assert len(unpacking.read(1000)) <= 1000


def test_pictures_are_not_compressed_again() -> None:
    assert choose(b"text " * 1000, "gzip") == "gzip"
    assert choose(random.Random(1).randbytes(10_000), "gzip") == "none"
    assert choose(b"text " * 1000, "none") == "none"


def test_files_iterators_text_and_bytes_are_read() -> None:
    for value in (io.BytesIO(b"abc"), iter([b"a", b"bc"]), "abc", b"abc", bytearray(b"abc")):
        assert b"".join(pieces_of(value)) == b"abc"
    assert is_stream(io.BytesIO())
    assert is_stream(iter([b""]))
    assert not is_stream({"a": 1})
    assert not is_stream([b"a"])
    with pytest.raises(TypeError, match="mode 'rb'"):
        list(pieces_of(io.StringIO("abc")))

"""The headers of chunks and claim checks, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.large.headers import (
    BadHeaders,
    Chunk,
    Claim,
    LastChunk,
    chunk_headers,
    claim_headers,
    kind_of,
    read_chunk,
    read_claim,
    without_large,
)

digests = st.binary(min_size=32, max_size=32)
ids = st.text("0123456789abcdef", min_size=32, max_size=32)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    index = draw(st.integers(0, 1000))
    end = None
    if draw(st.booleans()):
        end = LastChunk(
            index + 1, draw(st.integers(0, 1 << 40)), draw(digests), draw(st.integers(-1))
        )
    return Chunk(draw(ids), index, draw(digests), draw(st.sampled_from(["none", "gzip"])), end)


@given(chunks())
def test_a_chunk_is_read_as_it_was_written(chunk: Chunk) -> None:
    headers = [("mine", b"1"), *chunk_headers(chunk)]
    assert kind_of(headers) == "chunk"
    assert read_chunk(headers) == chunk
    assert without_large(headers) == [("mine", b"1")]


@given(st.text(min_size=1), st.integers(0, 1 << 40), digests)
def test_a_claim_is_read_as_it_was_written(name: str, size: int, digest: bytes) -> None:
    claim = Claim(name, "gzip", size, digest)
    assert read_claim(claim_headers(claim), name.encode()) == claim


@given(chunks(), st.data())
def test_a_chunk_with_a_bad_or_missing_header_is_refused(chunk: Chunk, data: st.DataObject) -> None:
    headers = dict(chunk_headers(chunk))
    needed = [name for name in headers if name not in ("headrace-large", "headrace-large-first")]
    if chunk.end is not None:
        # Without its count it is a chunk like the others.
        needed.remove("headrace-large-count")
    name = data.draw(st.sampled_from(needed))
    bad = data.draw(st.sampled_from([None, b"", b"-1", b"zz", b"9" * 5000]))
    if bad is None:
        del headers[name]
    else:
        headers[name] = bad
    with pytest.raises(BadHeaders):
        read_chunk(headers.items())


@pytest.mark.parametrize("headers", [None, [], [("a", b"chunk")], [("headrace-large-id", b"1")]])
def test_other_records_are_ordinary(headers: list[tuple[str, bytes | None]] | None) -> None:
    assert kind_of(headers) is None

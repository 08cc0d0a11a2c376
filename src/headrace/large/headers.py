"""The headers of large messages on the wire: of chunks and of claim checks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "headrace-large"
# `chunk`, `claim`, or `kept` (a message in the app's store).
KIND = PREFIX
ID = f"{PREFIX}-id"
INDEX = f"{PREFIX}-index"
# For a chunk, the digest of its value; for a claim check, of the whole body as stored.
SHA256 = f"{PREFIX}-sha256"
CODEC = f"{PREFIX}-codec"
# On the last chunk only, beside the sender's own headers.
COUNT = f"{PREFIX}-count"
BYTES = f"{PREFIX}-bytes"
# The digest of the digests of all chunks.
BODY = f"{PREFIX}-body"
FIRST = f"{PREFIX}-first"

CHUNK, CLAIM, KEPT = "chunk", "claim", "kept"
CODECS = ("none", "gzip")
CHUNKS_MAX = 1_000_000

_ID = re.compile(r"[0-9a-f]{32}")

HeaderPairs = list[tuple[str, bytes | None]]


class BadHeaders(ValueError):
    """Headers of a large message that are missing or malformed."""


@dataclass(frozen=True, slots=True)
class LastChunk:
    """What the last chunk says of the whole message."""

    count: int
    body_bytes: int
    digest: bytes
    # The offset of the first chunk; -1 if there is no other chunk.
    first_offset: int = -1


@dataclass(frozen=True, slots=True)
class Chunk:
    """The headers of one chunk."""

    id: str
    index: int
    digest: bytes
    codec: str
    end: LastChunk | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim check: a body in a body store, by its name there."""

    name: str
    codec: str
    body_bytes: int
    digest: bytes
    kind: str = CLAIM


def kind_of(headers: Iterable[tuple[str, bytes | None]] | None) -> str | None:
    """The kind of a large record; None for an ordinary one."""
    for name, value in headers or ():
        if name == KIND:
            return (value or b"").decode("ascii", "replace")
    return None


def without_large(headers: Iterable[tuple[str, bytes | None]]) -> HeaderPairs:
    """The headers that the sender gave the message."""
    return [pair for pair in headers if not pair[0].startswith(PREFIX)]


def chunk_headers(chunk: Chunk) -> HeaderPairs:
    """A chunk's headers, without the sender's own."""
    pairs = [
        (KIND, CHUNK),
        (ID, chunk.id),
        (INDEX, str(chunk.index)),
        (SHA256, chunk.digest.hex()),
        (CODEC, chunk.codec),
    ]
    if chunk.end is not None:
        pairs += [
            (COUNT, str(chunk.end.count)),
            (BYTES, str(chunk.end.body_bytes)),
            (BODY, chunk.end.digest.hex()),
            (FIRST, str(chunk.end.first_offset)),
        ]
    return [(name, text.encode()) for name, text in pairs]


def read_chunk(headers: Iterable[tuple[str, bytes | None]]) -> Chunk:
    """A chunk by its headers; BadHeaders if they are not what `chunk_headers` writes."""
    found = _texts(headers)
    try:
        end = None
        if COUNT in found:
            end = LastChunk(
                int(found[COUNT]),
                int(found[BYTES]),
                _digest(found[BODY]),
                int(found.get(FIRST, -1)),
            )
            if not 1 <= end.count <= CHUNKS_MAX or end.body_bytes < 0:
                raise ValueError(f"{end.count} chunks of {end.body_bytes} bytes")
        chunk = Chunk(found[ID], int(found[INDEX]), _digest(found[SHA256]), found[CODEC], end)
    except (KeyError, ValueError) as problem:
        raise BadHeaders(f"a chunk of a large message has bad headers: {problem}") from None
    limit = CHUNKS_MAX if chunk.end is None else chunk.end.count
    if not _ID.fullmatch(chunk.id) or not 0 <= chunk.index < limit or chunk.codec not in CODECS:
        raise BadHeaders(f"a chunk of a large message has bad headers: {found}")
    return chunk


def claim_headers(claim: Claim) -> HeaderPairs:
    """A claim check's headers; the record's value is the name."""
    pairs = [
        (KIND, claim.kind),
        (CODEC, claim.codec),
        (BYTES, str(claim.body_bytes)),
        (SHA256, claim.digest.hex()),
    ]
    return [(name, text.encode()) for name, text in pairs]


def read_claim(headers: Iterable[tuple[str, bytes | None]], value: bytes | None) -> Claim:
    """A claim check by its record's headers and value; BadHeaders if they are malformed."""
    found = _texts(headers)
    try:
        claim = Claim(
            (value or b"").decode(),
            found[CODEC],
            int(found[BYTES]),
            _digest(found[SHA256]),
            found[KIND],
        )
    except (KeyError, ValueError) as problem:
        raise BadHeaders(f"a claim check has bad headers: {problem}") from None
    if claim.codec not in CODECS or claim.body_bytes < 0 or not claim.name:
        raise BadHeaders(f"a claim check has bad headers: {found}")
    return claim


def _texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {
        name: (value or b"").decode("utf-8", "replace")
        for name, value in headers
        if name.startswith(PREFIX)
    }


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != 32:
        raise ValueError(f"{text!r} is not a SHA-256 digest")
    return digest

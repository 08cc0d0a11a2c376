"""The headers of large messages on the wire: what a chunk and a claim check say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

PREFIX = "headrace-large"
# What the record is: `chunk`, `claim`, or `kept` (of a message put away in the app's store).
KIND = PREFIX
ID = f"{PREFIX}-id"
INDEX = f"{PREFIX}-index"
# Of a chunk: the digest of its value. Of a claim: of the whole body as it is stored.
SHA256 = f"{PREFIX}-sha256"
CODEC = f"{PREFIX}-codec"
# On the last chunk only, beside the sender's own headers.
COUNT = f"{PREFIX}-count"
BYTES = f"{PREFIX}-bytes"
# The digest of the chunks' digests, one after the other.
BODY = f"{PREFIX}-body"
FIRST = f"{PREFIX}-first"

CHUNK, CLAIM, KEPT = "chunk", "claim", "kept"
CODECS = ("none", "gzip")
CHUNKS_MAX = 1_000_000

_ID = re.compile(r"[0-9a-f]{32}")

Pairs = list[tuple[str, bytes | None]]


class BadHeaders(ValueError):
    """Headers of a large message that say nothing, or not enough."""


@dataclass(frozen=True, slots=True)
class End:
    """What the last chunk knows of the whole."""

    count: int
    body_bytes: int
    digest: bytes
    # The offset of the first chunk, or -1 where the sender could not know it.
    first_offset: int = -1


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one chunk says of itself."""

    id: str
    index: int
    digest: bytes
    codec: str
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A body that lies elsewhere, by its name there."""

    name: str
    codec: str
    body_bytes: int
    digest: bytes
    kind: str = CLAIM


def kind_of(headers: Iterable[tuple[str, bytes | None]] | None) -> str | None:
    """What kind of large record has these headers; None for an ordinary one."""
    for name, value in headers or ():
        if name == KIND:
            return (value or b"").decode("ascii", "replace")
    return None


def without_large(headers: Iterable[tuple[str, bytes | None]]) -> Pairs:
    """The headers that the message's own sender gave it."""
    return [pair for pair in headers if not pair[0].startswith(PREFIX)]


def chunk_headers(chunk: Chunk) -> Pairs:
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
    said = _texts(headers)
    try:
        end = None
        if COUNT in said:
            end = End(
                int(said[COUNT]), int(said[BYTES]), _digest(said[BODY]), int(said.get(FIRST, -1))
            )
            if not 1 <= end.count <= CHUNKS_MAX or end.body_bytes < 0:
                raise ValueError(f"{end.count} chunks of {end.body_bytes} bytes")
        chunk = Chunk(said[ID], int(said[INDEX]), _digest(said[SHA256]), said[CODEC], end)
    except (KeyError, ValueError) as problem:
        raise BadHeaders(f"a chunk of a large message has bad headers: {problem}") from None
    limit = CHUNKS_MAX if chunk.end is None else chunk.end.count
    if not _ID.fullmatch(chunk.id) or not 0 <= chunk.index < limit or chunk.codec not in CODECS:
        raise BadHeaders(f"a chunk of a large message has bad headers: {said}")
    return chunk


def claim_headers(claim: Claim) -> Pairs:
    """A claim check's headers; the record's value is the name."""
    pairs = [
        (KIND, claim.kind),
        (CODEC, claim.codec),
        (BYTES, str(claim.body_bytes)),
        (SHA256, claim.digest.hex()),
    ]
    return [(name, text.encode()) for name, text in pairs]


def read_claim(headers: Iterable[tuple[str, bytes | None]], value: bytes | None) -> Claim:
    """A claim by its record's headers and value; BadHeaders if they make none."""
    said = _texts(headers)
    try:
        claim = Claim(
            (value or b"").decode(),
            said[CODEC],
            int(said[BYTES]),
            _digest(said[SHA256]),
            said[KIND],
        )
    except (KeyError, ValueError) as problem:
        raise BadHeaders(f"a claim check has bad headers: {problem}") from None
    if claim.codec not in CODECS or claim.body_bytes < 0 or not claim.name:
        raise BadHeaders(f"a claim check has bad headers: {said}")
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
        raise ValueError(f"{text!r} is no SHA-256")
    return digest


def record_kind(record: Any) -> str | None:
    """What kind of large record a record of the client library is, if it is one."""
    return kind_of(record.headers())

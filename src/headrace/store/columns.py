"""Message ids and record headers as tables keep them; imports no SQLAlchemy and no driver."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence

GivenHeaders = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]] | None

# PostgreSQL refuses index entries beyond some 2,700 bytes and zero bytes in text.
ID_CHARACTERS_MAX = 256
_DIGEST_CHARACTERS = 64


def new_id(now_ms: int) -> str:
    """A new id of 32 hex digits: the time, so that ids sort by age, then random digits."""
    return f"{now_ms:012x}{os.urandom(10).hex()}"


def is_plain(id: str) -> bool:
    """Whether the tables can keep this id as it is."""
    return len(id) <= ID_CHARACTERS_MAX and "\0" not in id


def plain_id(id: str) -> str:
    """The id as the tables keep it: one that does not fit is cut and marked with its digest."""
    if is_plain(id):
        return id
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    kept = id.replace("\0", "")[: ID_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]
    return f"{kept}#{digest}"


def pack_headers(given: GivenHeaders) -> str | None:
    """JSON pairs of name and text that people can read; other bytes become {"base64": ...}."""
    if not given:
        return None
    pairs = given.items() if isinstance(given, Mapping) else given
    return json.dumps([[name, _pack(value)] for name, value in pairs])


def unpack_headers(packed: str | None) -> list[tuple[str, bytes | None]]:
    """What `pack_headers` was given, as Kafka's clients have it."""
    if packed is None:
        return []
    return [(name, _unpack(value)) for name, value in json.loads(packed)]


def _pack(value: bytes | str | None) -> str | dict[str, str] | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _unpack(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])

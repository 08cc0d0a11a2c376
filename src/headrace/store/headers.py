"""Record headers as the tables keep them: JSON that people can read."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

Headers = Sequence[tuple[str, bytes | None]]
GivenHeaders = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]] | None


def pack_headers(given: GivenHeaders) -> str | None:
    """JSON pairs of name and text; what is not UTF-8 text stands as {"base64": ...}."""
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

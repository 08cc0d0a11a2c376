"""Message ids as the tables keep them."""

from __future__ import annotations

import hashlib
import os

# PostgreSQL refuses index entries beyond some 2,700 bytes and zero bytes in text.
ID_CHARACTERS_MAX = 256
_DIGEST_CHARACTERS = 64


def new_id(now_ms: int) -> str:
    """A new id, 32 hex digits: the time, so that neighbours in time lie together, and chance."""
    return f"{now_ms:012x}{os.urandom(10).hex()}"


def is_plain(id: str) -> bool:
    """Whether the tables can keep this id as it is."""
    return len(id) <= ID_CHARACTERS_MAX and "\0" not in id


def plain_id(id: str) -> str:
    """The id as the tables keep it: one that they cannot is cut and marked by its digest."""
    if is_plain(id):
        return id
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    kept = id.replace("\0", "")[: ID_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]
    return f"{kept}#{digest}"

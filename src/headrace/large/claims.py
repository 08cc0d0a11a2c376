"""Where the bodies of claim checks lie: the port, their names, and the place for a URL.

A record carries a body's name only, never a place: a reader looks where it was told to, so nobody
makes it open files of his choice by sending a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from headrace.large.errors import ClaimMissing

# CLUSTER/TOPIC/TIME-ID: the topic whose retention it lives by, and from when on in milliseconds.
_NAME = re.compile(r"([A-Za-z0-9._-]{1,249})/([A-Za-z0-9._-]{1,249})/([0-9]{1,15})-([0-9a-f]{32})")
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")

_DATABASES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Stored:
    """A body as its place lists it."""

    name: str
    body_bytes: int

    @property
    def cluster(self) -> str:
        """The cluster that has its topic; others know nothing of it."""
        return self.name.split("/")[0]

    @property
    def topic(self) -> str:
        """The topic whose retention it lives by."""
        return self.name.split("/")[1]

    @property
    def since_ms(self) -> int:
        """When its record is in the topic at the latest."""
        return int(self.name.split("/")[2].partition("-")[0])


class Claims(Protocol):
    """A place for bodies; safe from many threads. ClaimsAway while it cannot be reached."""

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a body under a name that nobody has; durable when it returns."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """A body from its beginning; ClaimMissing if there is none of that name."""
        ...

    def list(self) -> Iterator[Stored]:
        """All bodies, those left behind by senders that died too."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove bodies; one that is not there is no error."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def new_name(cluster: str, topic: str, since_ms: int, id: str) -> str:
    """The name of a body."""
    return f"{cluster}/{topic}/{since_ms}-{id}"


def cluster_name(cluster_id: str | None) -> str:
    """A cluster in the names of bodies: its id, which may be any text, or none at all."""
    return _NO_NAME.sub("_", cluster_id or "unnamed")[:249]


def is_name(name: str) -> bool:
    """Whether a name is one of ours, and not a way out of the place."""
    found = _NAME.fullmatch(name)
    return found is not None and not {found[1], found[2]} & {".", ".."}


def checked(name: str) -> str:
    """A name that came with a record; ClaimMissing if it is none of ours."""
    if not is_name(name):
        raise ClaimMissing(f"{name[:100]!r} is not the name of a body")
    return name


def open_claims(url: str) -> Claims:
    """The place at a URL: a database by its own, anything else through fsspec."""
    if url.partition(":")[0].partition("+")[0] in _DATABASES:
        from headrace.large.claims_sql import SqlClaims

        return SqlClaims(url)
    from headrace.large.claims_files import FileClaims

    return FileClaims(url)

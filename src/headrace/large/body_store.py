"""The port of body stores, which hold the bodies of claim checks, and the names of bodies.

A record carries the name of a body, never a URL: a reader opens it in its own body store only, so
no sender can make it open other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from headrace.large.errors import BodyMissing

# CLUSTER/TOPIC/TIME-ID: the topic whose retention applies, and the time it counts from, in
# milliseconds.
_NAME = re.compile(r"([A-Za-z0-9._-]{1,249})/([A-Za-z0-9._-]{1,249})/([0-9]{1,15})-([0-9a-f]{32})")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]")

_DATABASES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A body in the listing of a body store."""

    name: str
    body_bytes: int

    @property
    def cluster(self) -> str:
        """The cluster that its topic belongs to."""
        return self.name.split("/")[0]

    @property
    def topic(self) -> str:
        """The topic whose retention applies to it."""
        return self.name.split("/")[1]

    @property
    def since_ms(self) -> int:
        """The latest time at which its record was written."""
        return int(self.name.split("/")[2].partition("-")[0])


class BodyStore(Protocol):
    """Holds bodies; safe from many threads. BodyStoreUnavailable while it cannot be reached."""

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Store a body under a new name; durable when it returns."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """A body from its beginning; BodyMissing if it does not exist."""
        ...

    def list(self) -> Iterator[StoredBody]:
        """All bodies, including those of senders that died."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete bodies; a missing one is not an error."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def new_name(cluster: str, topic: str, since_ms: int, id: str) -> str:
    """The name of a body."""
    return f"{cluster}/{topic}/{since_ms}-{id}"


def cluster_name(cluster_id: str | None) -> str:
    """A cluster id as it is used in the names of bodies; a cluster may have any id, or none."""
    return _NOT_IN_NAME.sub("_", cluster_id or "unnamed")[:249]


def is_name(name: str) -> bool:
    """Whether a name is valid and cannot lead out of the body store."""
    found = _NAME.fullmatch(name)
    return found is not None and not {found[1], found[2]} & {".", ".."}


def checked(name: str) -> str:
    """A name from a record; BodyMissing if it is not valid."""
    if not is_name(name):
        raise BodyMissing(f"{name[:100]!r} is not the name of a body")
    return name


def open_body_store(url: str) -> BodyStore:
    """The body store at a URL: in a database, or anything that fsspec opens."""
    if url.partition(":")[0].partition("+")[0] in _DATABASES:
        from headrace.large.body_table import BodyTable

        return BodyTable(url)
    from headrace.large.body_files import BodyFiles

    return BodyFiles(url)

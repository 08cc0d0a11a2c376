"""The metadata store port: a small tree of versioned entries, shared by the nodes of a cluster.

The rules are ZooKeeper's, so that it can implement this port: an entry's parent must
exist, an entry with children cannot be deleted, versions start at 0 and grow by one with each set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
ROOT = "/"
# ZooKeeper's limit is 1 MiB, including the path and the request around it.
DATA_BYTES_MAX = 960 * 1024


class StoreError(Exception):
    """The store refused a request; nothing has changed."""


class NoEntryError(StoreError):
    """The entry, or the parent of an entry to create, does not exist."""


class EntryExistsError(StoreError):
    """The entry to create exists."""


class BadVersionError(StoreError):
    """The entry has another version than expected: it was changed in the meantime."""


class NotEmptyError(StoreError):
    """The entry has children, so it cannot be deleted; or it may not have any."""


class SessionExpiredError(StoreError):
    """The session that should own the entry has ended."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is closed, or its disk failed; the outcome may be unknown."""


class MetadataEntry(NamedTuple):
    """The entry of one path; an ephemeral one has the session that it ends with."""

    data: bytes
    version: int
    session_id: int | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Create an entry at version 0; with a session it is removed when that session ends."""

    path: str
    data: bytes = b""
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """Replace an entry's data if it has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an entry if it has this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but fail unless the entry has this version."""

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = Create | Set | Delete | Check


class Session(Protocol):
    """A lease: its entries stay while the store renews it, and are removed at its deadline."""

    @property
    def id(self) -> int: ...

    @property
    def expired(self) -> bool:
        """True once the session has ended; it never comes back."""
        ...

    async def close(self) -> None:
        """End the session now and remove its entries."""
        ...


class Watch(Protocol):
    """Notices changes at or below a path, from its creation on."""

    async def changed(self) -> None:
        """Return once something has changed since the last return.

        Several changes may count as one, and it may return without any.
        """
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class MetadataStore(Protocol):
    """The tree. Every method may raise StoreUnavailableError."""

    async def read(self, path: str) -> MetadataEntry | None:
        """The entry at a path, or None."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names of the children of a path, sorted; raises NoEntryError if it does not exist."""
        ...

    async def read_children(self, path: str) -> dict[str, MetadataEntry]:
        """The children of a path by name; raises NoEntryError if it does not exist."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        """Do all or nothing, in order; returns the entries' new versions (-1 for a delete).

        Durable when it returns. On cancel the change may or may not have happened.
        """
        ...

    async def watch(self, prefix: str) -> Watch:
        """Watch a path and all below it, whether it exists yet or not."""
        ...

    async def session(self, timeout_ms: int) -> Session:
        """Start a session that ends when it was not renewed for this long."""
        ...

    async def close(self) -> None:
        """Close the store; own sessions end now."""
        ...


def check_path(path: str) -> None:
    """Raise ValueError unless this is an absolute path without empty parts."""
    if path != ROOT and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ValueError(f"{path!r} is not a path such as /brokers/topics")
    if "\0" in path:
        raise ValueError(f"{path!r} holds a NUL")


def check_op(op: Op) -> None:
    """Raise ValueError if the path is invalid or the data is too large."""
    check_path(op.path)
    if isinstance(op, Create | Set) and len(op.data) > DATA_BYTES_MAX:
        raise ValueError(f"{op.path}: an entry holds {DATA_BYTES_MAX} bytes at most")


def parent_of(path: str) -> str:
    """The path above a path that is not the root."""
    return path.rpartition("/")[0] or ROOT


def covers(prefix: str, path: str) -> bool:
    """True if the path is the prefix or below it."""
    return path == prefix or prefix == ROOT or path.startswith(prefix + "/")

"""The metadata store port: a small tree of versioned entries, shared by the nodes of a cluster.

The rules are those of ZooKeeper, so that it can stand behind this port: an entry's parent must
exist, an entry with children cannot be deleted, versions start at 0 and grow by one with each set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1
ROOT = "/"
# ZooKeeper takes 1 MiB with the path and what is around it.
DATA_BYTES_MAX = 960 * 1024


class StoreError(Exception):
    """The store could not do what was asked; nothing of it has happened."""


class NoEntryError(StoreError):
    """The entry, or the parent of an entry to create, does not exist."""


class EntryExistsError(StoreError):
    """The entry to create exists."""


class BadVersionError(StoreError):
    """The entry has another version than expected: somebody changed it meanwhile."""


class NotEmptyError(StoreError):
    """The entry has children, so it cannot be deleted; or it may not have any."""


class SessionExpiredError(StoreError):
    """The session that should own the entry has ended."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is closed, or its disk fails; the outcome may be unknown."""


class MetadataEntry(NamedTuple):
    """What one path holds; an ephemeral entry names the session it lives and dies with."""

    data: bytes
    version: int
    session_id: int | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Make an entry at version 0; with a session it is removed when that session ends."""

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
    """Change nothing, but let the others happen only if the entry has this version."""

    path: str
    version: int = ANY_VERSION


Op: TypeAlias = Create | Set | Delete | Check


class Session(Protocol):
    """A sign of life: its entries stay while the store renews it and vanish at its deadline."""

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
    """Notices changes at a path or below it, from the moment it was made."""

    async def changed(self) -> None:
        """Return once something has changed since the last return.

        Several changes may count as one, and now and then it returns without any.
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
        """Names of the entries right below a path, sorted; NoEntryError if there is no path."""
        ...

    async def read_children(self, path: str) -> dict[str, MetadataEntry]:
        """The entries right below a path by name; NoEntryError if there is no such path."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        """Do all or nothing, in order; the entries' new versions (-1 for a delete).

        Durable when it returns. On cancel the change may or may not have happened.
        """
        ...

    async def watch(self, prefix: str) -> Watch:
        """Watch a path and all below it, whether it exists yet or not."""
        ...

    async def session(self, timeout_ms: int) -> Session:
        """Begin a session that ends when it has not been renewed for this long."""
        ...

    async def close(self) -> None:
        """Let go of the store; own sessions end now."""
        ...


def check_path(path: str) -> None:
    """Raise ValueError unless this is an absolute path without empty parts."""
    if path != ROOT and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ValueError(f"{path!r} is not a path such as /brokers/topics")
    if "\0" in path:
        raise ValueError(f"{path!r} holds a NUL")


def check_op(op: Op) -> None:
    """Raise ValueError unless the path is one and the data is not too large."""
    check_path(op.path)
    if isinstance(op, Create | Set) and len(op.data) > DATA_BYTES_MAX:
        raise ValueError(f"{op.path}: an entry holds {DATA_BYTES_MAX} bytes at most")


def parent_of(path: str) -> str:
    """The path above a path that is not the root."""
    return path.rpartition("/")[0] or ROOT


def covers(prefix: str, path: str) -> bool:
    """True if the path is the prefix or lies below it."""
    return path == prefix or prefix == ROOT or path.startswith(prefix + "/")

"""What the pure machines ask of the runtime."""

from __future__ import annotations

from typing import NamedTuple

from headrace.dispatch.fences import Fence, Token
from headrace.dispatch.tokens import Change


class Store(NamedTuple):
    """Make this change in the next exchange; repeat it, in order, until the store answers."""

    change: Change


class Look(NamedTuple):
    """Ask the store about this partition in the next exchange."""

    partition: int


class Run(NamedTuple):
    """Let the worker have this item; then write its outcome and say `finished`."""

    partition: int
    offset: int
    item_id: str
    fence: Fence
    is_inherited: bool


class Refuse(NamedTuple):
    """Write `refused` for this item; then say `written`."""

    partition: int
    offset: int
    item_id: str


class Check(NamedTuple):
    """Is this record settled: `checked` says so.

    It is when its item is done or failed, or when any outcome was written for this very offset.
    """

    partition: int
    offset: int
    item_id: str
    epoch: int


class Commit(NamedTuple):
    """Commit this next offset; it may be late or lost, which only means reading more again."""

    partition: int
    next_offset: int


class Probe(NamedTuple):
    """Send a record without a value to this partition; it may be lost."""

    partition: int


class Claim(NamedTuple):
    """Commit this next offset and wait: when the group accepts it, say `claimed`."""

    partition: int
    next_offset: int


class Seek(NamedTuple):
    """Read this partition again from this offset."""

    partition: int
    offset: int


class Send(NamedTuple):
    """Send this item to the token's partition with the token's fence."""

    item_id: str
    token: Token


Effect = Store | Look | Run | Refuse | Check | Commit | Probe | Claim | Seek | Send

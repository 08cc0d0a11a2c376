"""The effects that the pure machines return and the services carry out."""

from __future__ import annotations

from typing import NamedTuple

from headrace.dispatch.tokens.store import Fence, Token, TokenChange


class ChangeToken(NamedTuple):
    """Make this change in the next exchange; repeat it, in order, until the store answers."""

    change: TokenChange


class Query(NamedTuple):
    """Ask the store about this partition in the next exchange."""

    partition: int


class Run(NamedTuple):
    """Run this job; then write its outcome and call `finished`."""

    partition: int
    offset: int
    job_id: str
    fence: Fence
    is_inherited: bool


class Refuse(NamedTuple):
    """Write the outcome `refused` for this job; then call `written`."""

    partition: int
    offset: int
    job_id: str


class Check(NamedTuple):
    """Find out whether this record is settled; then call `checked`.

    It is settled if its job is done or failed, or if any outcome was written for this offset.
    """

    partition: int
    offset: int
    job_id: str
    epoch: int


class Commit(NamedTuple):
    """Commit this next offset; a late or lost commit only means that more is read again."""

    partition: int
    next_offset: int


class Probe(NamedTuple):
    """Send a record without a value to this partition; it may be lost."""

    partition: int


class Claim(NamedTuple):
    """Commit this next offset and wait; when the group accepts it, call `claimed`."""

    partition: int
    next_offset: int


class Seek(NamedTuple):
    """Read this partition again from this offset."""

    partition: int
    offset: int


class Send(NamedTuple):
    """Send this job to the token's partition with the token's fence."""

    job_id: str
    token: Token


Effect = ChangeToken | Query | Run | Refuse | Check | Commit | Probe | Claim | Seek | Send

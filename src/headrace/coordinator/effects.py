"""The effects of a request or a timer: records to store, replies to send, timers to set.

The rule of order: `records` are appended, then replayed, and only when they are durable are
`replies` sent. `timers` may be set at once; a timer is only a reason to check again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.coordinator.records import Change
from headrace.protocol.schema import Message

# Identifies a request that waits; opaque here, the broker knows how to respond to it.
Token = object


class Now(NamedTuple):
    """The time, on both clocks."""

    # Wall clock, as stored in records.
    wall_ms: int
    # Monotonic, for sessions.
    monotonic_ms: int


class Call(NamedTuple):
    """The client of a request, its time, and where the response goes."""

    token: Token
    api_version: int
    client_id: str
    client_host: str
    now: Now


class ProducerEpoch(NamedTuple):
    """The producer whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


class TimerKind(Enum):
    """The clock of a timer: sessions follow the broker's clock, rebalances the real one."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class TimerKey(NamedTuple):
    """A timer's name; setting a timer of the same name replaces the earlier one."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


class SetTimer(NamedTuple):
    """Set a timer, or (no delay) cancel it."""

    key: TimerKey
    delay_ms: int | None


class Reply(NamedTuple):
    """The response for one token."""

    token: Token
    response: Message


class Cause(Enum):
    """Why a group rebalances, for a counter's label."""

    NEW_MEMBER = "new-member"
    REJOINED = "rejoined"  # with other metadata, or as the leader that wants a rebalance
    STATIC_MEMBER_RETURNED = "static-member-returned"
    LEFT = "left"
    SESSION_TIMEOUT = "session-timeout"
    SYNC_TIMEOUT = "sync-timeout"
    GROUP_TOO_LARGE = "group-too-large"


class Rebalance(NamedTuple):
    """A rebalance that started: its cause for counters, its reason for logs."""

    group_id: str
    cause: Cause
    reason: str


@dataclass(slots=True)
class Result:
    """All effects of one step."""

    records: list[Change] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    rebalances: list[Rebalance] = field(default_factory=list)
    # The transaction that the records are part of, if any.
    producer: ProducerEpoch | None = None

    def reply(self, token: Token, response: Message) -> Result:
        """Add a reply; returns the result for chaining."""
        self.replies.append(Reply(token, response))
        return self

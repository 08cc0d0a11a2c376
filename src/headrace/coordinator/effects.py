"""What a request or a timer brings about: records to store, answers to send, timers to set.

The rule of order: `records` are appended, then replayed, and only when they are durable are
`replies` sent. `timers` may be set at once; a timer is only ever a reason to look again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.coordinator.records import Change
from headrace.protocol.schema import Message

# Whoever waits for an answer; opaque here, the broker knows how to reach them.
Token = object


class Now(NamedTuple):
    """The time, on both clocks."""

    # As stored in records.
    wall_ms: int
    # For sessions: it never goes back.
    monotonic_ms: int


class Call(NamedTuple):
    """Who asks, when, and where the answer goes."""

    token: Token
    api_version: int
    client_id: str
    client_host: str
    now: Now


class ProducerEpoch(NamedTuple):
    """Whose transaction records belong to."""

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
    """Set (or, with no delay, call off) a timer."""

    key: TimerKey
    delay_ms: int | None


class Reply(NamedTuple):
    """An answer for one token."""

    token: Token
    response: Message


class Cause(Enum):
    """Why a group rebalances, in as many words as a counter can have."""

    NEW_MEMBER = "new-member"
    REJOINED = "rejoined"  # a member with other metadata, or a leader that wants to share out anew
    STATIC_MEMBER_RETURNED = "static-member-returned"
    LEFT = "left"
    SESSION_TIMEOUT = "session-timeout"
    SYNC_TIMEOUT = "sync-timeout"
    GROUP_TOO_LARGE = "group-too-large"


class Rebalance(NamedTuple):
    """A group began to rebalance, and why: the cause for counters, the reason for logs."""

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
        """Add an answer; returns the result for chaining."""
        self.replies.append(Reply(token, response))
        return self

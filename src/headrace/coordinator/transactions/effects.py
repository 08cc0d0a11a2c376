"""What a step of the transaction coordinator brings about.

The rule of order: `records` are appended, then replayed; only when they are durable is the answer
sent (but for added partitions, see `coordinator`), and only then are the markers of `endings`
written. When every marker of an ending is durable, `settled` is called; if the ending has no epoch
of its own, its records must be durable before a later transaction writes anything. `timers` are set
when the records are appended: if they cannot be, nothing has changed, and an ongoing transaction
keeps its timer. A timer is only ever a reason to look again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.coordinator.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionChange,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition


class Producer(NamedTuple):
    """One incarnation of a producer."""

    id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Ending(NamedTuple):
    """A decided transaction: a marker goes to each of its partitions."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    # Whether every transaction of this producer has an epoch of its own (KIP-890). Then a partition
    # that knows the epoch of the marker has had it, and what is open there belongs to a later
    # transaction. Without it, that must not come to be before this one is known to be over.
    has_own_epoch: bool


class SetTimer(NamedTuple):
    """Set (or, with no delay, call off) the one timer of a transactional id."""

    transactional_id: str
    delay_ms: int | None


class Note(Enum):
    """What happened, for logs and counters."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    TIMED_OUT = "timed out"
    FENCED = "fenced"
    EXPIRED = "expired"


@dataclass(slots=True)
class Result:
    """All effects of one step, and the answer to whoever asked for it."""

    error: ErrorCode = ErrorCode.NONE
    # Whom the client is from now on; only InitProducerId and EndTxn say.
    producer: Producer = NO_PRODUCER
    records: list[TransactionChange] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    notes: list[tuple[str, Note]] = field(default_factory=list)

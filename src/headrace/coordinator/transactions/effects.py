"""The effects of a step of the transaction coordinator.

The rule of order: `records` are appended, then replayed; only when they are durable is the answer
sent (but for added partitions, see `coordinator`), and only then are the markers of `endings`
written. When every marker of an ending is durable, `settled` is called; if the ending has no epoch
of its own, its records must be durable before a later transaction writes. `timers` are set
when the records are appended: if they cannot be, nothing has changed, and an ongoing transaction
keeps its timer. A timer is only a reason to check again.
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
    # Whether every transaction of this producer has its own epoch (KIP-890). Then a partition that
    # knows the epoch of the marker already has the marker, and an open transaction there is a later
    # one. Without it, a later one must not start before this one is known to have ended.
    has_own_epoch: bool


class SetTimer(NamedTuple):
    """Set the one timer of a transactional id, or (no delay) cancel it."""

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
    """All effects of one step, and the answer to its request."""

    error: ErrorCode = ErrorCode.NONE
    # The client's producer id and epoch from now on; only InitProducerId and EndTxn set them.
    producer: Producer = NO_PRODUCER
    records: list[TransactionChange] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    notes: list[tuple[str, Note]] = field(default_factory=list)

"""What a ledger has done and has to do, as others may look at it while it works."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Written by the ledger's own threads; the figures of one instance."""

    # Commands moved to the state topic, and records that were none.
    taken: int = 0
    refused: int = 0
    # Entries whose transaction was committed, and how many transactions that took.
    acted: int = 0
    transactions: int = 0
    # Of the state partitions that are owned: entries, and the earliest due time.
    pending: int = 0
    first_due_ms: int | None = None
    # State partitions owned, and how many of them are read to their end.
    owned: int = 0
    caught_up: int = 0
    # The next offset of each partition that is read, by (topic, partition).
    positions: dict[tuple[str, int], int] = field(default_factory=dict)

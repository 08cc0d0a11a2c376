"""The figures of one instance of a ledger service, readable while it works."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class LedgerStats:
    """Written by the threads of the service only."""

    # Commands moved to the state topic, and how many of them were invalid.
    taken: int = 0
    refused: int = 0
    # Entries whose transaction was committed, and the number of those transactions.
    acted: int = 0
    transactions: int = 0
    # Entries in the owned state partitions, and the earliest due time.
    pending: int = 0
    first_due_ms: int | None = None
    # Owned state partitions, and how many of them are read to their end.
    owned: int = 0
    caught_up: int = 0
    # The next offset of each partition that is read, by topic and partition.
    positions: dict[tuple[str, int], int] = field(default_factory=dict)

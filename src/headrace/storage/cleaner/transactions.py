"""Follows transactions during a cleaning, so that aborted data and spent markers are dropped."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.storage.log.txn_index import AbortedTxn


class CleanedTransactions:
    """Sees the batches of a log in offset order and decides which of them may be dropped.

    Only offsets below the last stable offset are read, so every transaction here is decided. A
    marker is spent once a pass finds no batch of its transaction; its delete horizon then starts,
    as for a tombstone.
    """

    def __init__(self, aborted: Iterable[AbortedTxn], start_offset: int):
        # An abort whose marker is before the start is over: including it would make the
        # producer's next, committed, transaction look aborted.
        self._coming = sorted(
            (txn for txn in aborted if txn.last_offset >= start_offset),
            key=lambda txn: txn.first_offset,
            reverse=True,
        )
        self._aborting: dict[int, AbortedTxn] = {}
        self._aborted_seen: set[int] = set()
        self._committed_seen: set[int] = set()

    def on_data(self, producer_id: int, last_offset: int) -> bool:
        """Note a transactional batch; True when it belongs to an aborted transaction."""
        self._advance(last_offset)
        if producer_id in self._aborting:
            self._aborted_seen.add(producer_id)
            return True
        self._committed_seen.add(producer_id)
        return False

    def on_commit(self, producer_id: int, offset: int) -> bool:
        """Note a commit marker; True when it is spent."""
        self._advance(offset)
        spent = producer_id not in self._committed_seen
        self._committed_seen.discard(producer_id)
        return spent

    def on_abort(self, producer_id: int, offset: int) -> tuple[bool, AbortedTxn | None]:
        """Note an abort marker: whether it is spent, and the index row that must stay with it.

        If data of the transaction has no index row (a lost index), its marker stays: recovery
        rebuilds the row from it.
        """
        self._advance(offset)
        row = self._aborting.pop(producer_id, None)
        seen = producer_id in self._aborted_seen or producer_id in self._committed_seen
        self._aborted_seen.discard(producer_id)
        self._committed_seen.discard(producer_id)
        return not seen, row if seen else None

    def _advance(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            transaction = coming.pop()
            self._aborting.setdefault(transaction.producer_id, transaction)

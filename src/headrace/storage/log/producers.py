"""The producers of a log: their sequences, so that a retry has one effect, and transactions.

Kafka's rules: five batches are remembered per producer id, and a repeated one is answered with its
first offset; the next sequence must follow the last; an older epoch is fenced; a new epoch starts
at sequence 0; an unknown producer may start anywhere. Sequences wrap at 2^31-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.protocol.errors import ErrorCode, KafkaError

REMEMBERED_BATCHES = 5
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TRANSACTION = -1
_SEQUENCE_MASK = (1 << 31) - 1


class RememberedBatch(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTxn(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producer:
    """The state of one producer id in one log."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[RememberedBatch] = []
        self.next_sequence = 0
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.txn_first_offset = NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def is_in_transaction(self) -> bool:
        return self.txn_first_offset != NO_TRANSACTION

    def expects(self, epoch: int, sequence: int, transactional: bool) -> bool:
        """Whether a batch is the next one of a producer without a transaction."""
        return (
            sequence == self.next_sequence
            and epoch == self.epoch
            and not transactional
            and self.txn_first_offset == NO_TRANSACTION
        )

    def remember(
        self, first_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """Remember a batch that was written."""
        last_sequence = (first_sequence + last_offset - first_offset) & _SEQUENCE_MASK
        batches = self.batches
        batches.append(
            RememberedBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp)
        )
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]
        self.next_sequence = (last_sequence + 1) & _SEQUENCE_MASK
        self.last_timestamp = timestamp

    def duplicate(self, epoch: int, first_sequence: int, last_delta: int) -> RememberedBatch | None:
        """The remembered batch that this one repeats."""
        if epoch == self.epoch:
            last_sequence = (first_sequence + last_delta) & _SEQUENCE_MASK
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


class Producers:
    """All producers of one log; changed only by appends."""

    __slots__ = ("_ongoing", "_unreplicated", "by_id", "first_unstable_offset")

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self.first_unstable_offset: int | None = None
        # First offset -> producer id, in the order of appends and so ascending.
        self._ongoing: dict[int, int] = {}
        # First offset -> marker offset, while the marker is not below the high watermark.
        self._unreplicated: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self.by_id.values())

    def get(self, producer_id: int) -> Producer | None:
        return self.by_id.get(producer_id)

    def in_transaction(self) -> list[Producer]:
        """The producers with an open transaction, oldest transaction first."""
        return [self.by_id[producer_id] for producer_id in self._ongoing.values()]

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_delta: int,
        transactional: bool,
    ) -> RememberedBatch | None:
        """Accept a client's batch (None), return the batch it repeats, or raise KafkaError."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            return None
        if duplicate := producer.duplicate(epoch, first_sequence, last_delta):
            return duplicate
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}, the log has seen {producer.epoch}",
            )
        if epoch > producer.epoch:
            if first_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} starts epoch {epoch} at sequence {first_sequence}",
                )
        elif first_sequence != producer.next_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {first_sequence}, "
                f"{producer.next_sequence} was expected",
            )
        if producer.txn_first_offset != NO_TRANSACTION and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction, the batch is not part of it",
            )
        return None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Accept a transaction marker from the coordinator, or raise KafkaError."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of producer {producer_id} has epoch {epoch}, not {producer.epoch}",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"not {producer.coordinator_epoch}",
            )

    def append_batch(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Remember a data batch that was written."""
        producer = self._at_epoch(producer_id, epoch)
        if first_sequence >= 0:
            producer.remember(first_sequence, first_offset, last_offset, timestamp)
        else:
            producer.last_timestamp = timestamp
        if transactional and producer.txn_first_offset == NO_TRANSACTION:
            producer.txn_first_offset = first_offset
            self._ongoing[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        offset: int,
        coordinator_epoch: int,
        timestamp: int,
        aborted: bool,
    ) -> CompletedTxn | None:
        """Remember a transaction marker that was written; returns the transaction it ended."""
        producer = self._at_epoch(producer_id, epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        first_offset = producer.txn_first_offset
        if first_offset == NO_TRANSACTION:
            return None
        producer.txn_first_offset = NO_TRANSACTION
        self._ongoing.pop(first_offset, None)
        # Unstable until the marker itself is below the high watermark.
        self._unreplicated[first_offset] = offset
        return CompletedTxn(producer_id, first_offset, offset, aborted)

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """The first undecided offset after this transaction."""
        return next(iter(self._ongoing), completed.last_offset + 1)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget decided transactions whose marker every reader can see."""
        if self._unreplicated:
            for first_offset, marker_offset in list(self._unreplicated.items()):
                if marker_offset < high_watermark:
                    del self._unreplicated[first_offset]
        self._find_first_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that were silent for too long; how many."""
        expired = [
            producer.producer_id
            for producer in self.by_id.values()
            if producer.txn_first_offset == NO_TRANSACTION
            and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.by_id[producer_id]
        return len(expired)

    def restore(self, producer: Producer) -> None:
        """Put back a producer read from a snapshot."""
        self.by_id[producer.producer_id] = producer
        if producer.txn_first_offset != NO_TRANSACTION:
            self._ongoing[producer.txn_first_offset] = producer.producer_id
            self._ongoing = dict(sorted(self._ongoing.items()))
            self._find_first_unstable()

    def clear(self) -> None:
        self.by_id.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None

    def _at_epoch(self, producer_id: int, epoch: int) -> Producer:
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
            producer.next_sequence = 0
        return producer

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            undecided = min(self._unreplicated)
            first = undecided if first is None else min(first, undecided)
        self.first_unstable_offset = first

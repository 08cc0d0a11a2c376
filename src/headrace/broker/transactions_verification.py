"""Verification that a batch of a transaction may be written: its coordinator decides.

Clients since KIP-890 (Produce v12) add a partition to a transaction by writing to it. Older ones
add it first, and a batch for any other partition is refused: it would open a transaction there
that nobody ends.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING

from headrace.broker.transactions_shard import TransactionShard
from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.coordinator import BUMPING_VERSION, TransactionCoordinator
from headrace.coordinator.transactions.effects import NO_PRODUCER, Note, Producer, Result
from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    HEADER_BYTES,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    check_batch,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition

# Produce versions: an error that asks to abort, and partitions added by writing.
ABORTABLE_VERSION = 11
IMPLICIT_VERSION = 12
_PRODUCER = Struct(">qh")
_SEQUENCE = Struct(">i")

# Errors of a coordinator that producers retry under another name.
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def is_transactional(records: memoryview | None) -> bool:
    """Whether a batch is part of a transaction."""
    return (
        records is not None
        and len(records) >= HEADER_BYTES
        and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT != 0
    )


def producer_of(records: memoryview) -> Producer:
    """The producer of a batch."""
    return Producer(*_PRODUCER.unpack_from(records, PRODUCER_ID_AT))


def sequence_of(records: memoryview) -> int:
    """The base sequence of a batch."""
    (sequence,) = _SEQUENCE.unpack_from(records, BASE_SEQUENCE_AT)
    return int(sequence)


def is_gap(partition: Partition, records: memoryview) -> bool:
    """Whether batches before this one are missing from a log that knows nothing of its producer.

    The log itself lets such a producer start anywhere, because its state may have expired. Since
    KIP-890 every transaction has its own epoch and starts at 0, so a later start means that an
    earlier batch of the same producer was refused.
    """
    return sequence_of(records) > 0 and partition.log.producers.get(producer_of(records).id) is None


class TransactionVerification:
    """Verifies the batches of one produce request with the coordinator of its transaction."""

    def __init__(
        self,
        node: Node,
        transactional_id: str,
        api_version: int,
        batches: list[tuple[TopicPartition, memoryview]],
    ) -> None:
        self._node = node
        self._transactional_id = transactional_id
        self._version = api_version
        # A request has one producer; a batch of another one is refused when it is checked.
        self._producer = producer_of(batches[0][1]) if batches else NO_PRODUCER
        self._places = [place for place, _ in batches]
        self._shard: TransactionShard | None = None
        self._error = ErrorCode.NONE
        self._verifies = api_version >= IMPLICIT_VERSION or node.settings.bool(
            "transaction.partition.verification.enable"
        )
        self._is_given = False
        self._came: asyncio.Event | None = None

    def ask(self) -> bool:
        """Ask the coordinator; False if it must `wait` for an earlier transaction to end."""
        try:
            self._shard = self._node.transactions.shard_of(self._transactional_id)
        except KafkaError as error:
            self._error = error.code
            return True
        self._shard.attempt(self._transactional_id, self._step, self._stepped, early=True)
        return self._is_given

    async def wait(self) -> None:
        """Wait until the batches may be checked."""
        if not self._is_given:
            self._came = asyncio.Event()
            await self._came.wait()

    def _step(self, coordinator: TransactionCoordinator, now: Now) -> Result:
        transactional_id = self._transactional_id
        if self._version >= IMPLICIT_VERSION and self._places:
            return coordinator.add(
                transactional_id, self._producer, self._places, BUMPING_VERSION, now
            )
        if coordinator.is_settling(transactional_id):
            return Result(ErrorCode.CONCURRENT_TRANSACTIONS)
        return Result()

    def _stepped(self, error: ErrorCode, _: Producer) -> None:
        assert self._shard is not None
        if error:
            self._answer(error)
        else:
            self._shard.when_over(self._transactional_id, self._answer)

    def _answer(self, error: ErrorCode) -> None:
        self._error = error
        self._is_given = True
        if self._came is not None:
            self._came.set()

    def check(self, partition: Partition, records: memoryview) -> None:
        """Raise KafkaError unless this batch may be written now."""
        error = self._error
        if not error and self._shard is not None and self._verifies:
            # Asked at the last moment: the transaction may have ended in the meantime.
            error = self._shard.error or self._shard.coordinator.verify(
                self._transactional_id,
                producer_of(records),
                (partition.topic, partition.index),
            )
            if error is ErrorCode.PRODUCER_FENCED:
                self._node.transactions.note([(self._transactional_id, Note.FENCED)])
        if not error and self._version >= IMPLICIT_VERSION and is_gap(partition, records):
            error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if error:
            check_batch(records, 0, len(records))  # the bit itself may be damaged
            raise self._refusal(error)

    def durable_at(self) -> tuple[Partition, int] | None:
        """The log that must be durable before the batches count, and up to where; None if it is."""
        shard = self._shard
        if shard is None or shard.is_durable:
            return None
        return shard.partition, shard.end_offset

    def _refusal(self, error: ErrorCode) -> KafkaError:
        if error is ErrorCode.PRODUCER_FENCED:
            # Kafka's older error: the producer may abort and start again.
            return KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has the transactional id"
            )
        if error in RETRIABLE or (
            error is ErrorCode.CONCURRENT_TRANSACTIONS and self._version < IMPLICIT_VERSION
        ):
            return KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the transaction's coordinator cannot be asked now: {error.name}",
            )
        if error is ErrorCode.TRANSACTION_ABORTABLE:
            if self._version < ABORTABLE_VERSION:
                error = ErrorCode.INVALID_TXN_STATE
            return KafkaError(error, "the partition was not added to the transaction")
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return KafkaError(error, "a transaction's first batch in a partition has sequence 0")
        return KafkaError(error)

"""What a transaction coordinator stores, in Kafka's format of `__transaction_state`.

A record holds all that is known of a transactional id; one without a value is a tombstone.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.coordinator.transactions.states import STATES_BY_ID, State
from headrace.protocol.logs import (
    read_key,
    read_prefix,
    read_versioned,
    write_key,
    write_versioned,
)
from headrace.protocol.logs.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.primitives import ProtocolError

TRANSACTION_KEY = 0
# Flexible, as Kafka writes it from `transaction.version` 1.
VALUE_VERSION = 1

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1


class Transaction(NamedTuple):
    """A transactional id as it is stored."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer's id after this transaction, if its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    # The `transaction.version` of the client that wrote last.
    client_version: int = 0
    # The epoch before an InitProducerId that raised it, so that a repeated request gets the same
    # answer (KIP-360). Kafka's record has no field for it: a restart forgets it.
    last_producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionChange(NamedTuple):
    """A transactional id has a new state, or (None) was forgotten."""

    transactional_id: str
    transaction: Transaction | None


def encode(change: TransactionChange) -> tuple[bytes, bytes | None]:
    """The key and the value of a change's record."""
    key = write_key(TransactionLogKey(transactional_id=change.transactional_id))
    return key, None if change.transaction is None else _encode_value(change.transaction)


def decode(key: bytes, value: bytes | None) -> TransactionChange | None:
    """The change that a record means; None for unknown kinds of records."""
    if read_prefix(key) != TRANSACTION_KEY:
        return None
    transactional_id = read_key(TransactionLogKey, key).transactional_id
    return TransactionChange(transactional_id, None if value is None else _decode_value(value))


def _encode_value(transaction: Transaction) -> bytes:
    partitions = None
    if transaction.state is not State.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(transaction.partitions):
            by_topic.setdefault(topic, []).append(index)
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic.items()
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.id,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return write_versioned(value, VALUE_VERSION)


def _decode_value(data: bytes) -> Transaction:
    value = read_versioned(TransactionLogValue, data)
    state = STATES_BY_ID.get(value.transaction_status)
    if state is None:
        raise ProtocolError(f"there is no transaction state {value.transaction_status}")
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )

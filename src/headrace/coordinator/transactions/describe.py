"""Transactions as administrators see them: DescribeTransactions and ListTransactions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from headrace.coordinator.transactions.records import Transaction
from headrace.coordinator.transactions.states import State
from headrace.protocol.api import list_transactions
from headrace.protocol.api.describe_transactions import TopicData, TransactionState

STATE_NAMES = frozenset(state.value for state in State)


def described(transactional_id: str, known: Transaction) -> TransactionState:
    """One transactional id with the partitions of its transaction."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(known.partitions):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


def listed(
    transactions: Mapping[str, Transaction],
    states: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int,
    now_ms: int,
) -> Iterable[list_transactions.TransactionState]:
    """The transactional ids that pass the filters; an empty filter lets everything pass.

    With a duration, those whose transaction started longer ago; one that never started counts as
    very old, as in Kafka.
    """
    for transactional_id, known in transactions.items():
        if producer_ids and known.producer_id not in producer_ids:
            continue
        if states and known.state.value not in states:
            continue
        if duration_ms >= 0 and now_ms - known.start_ms <= duration_ms:
            continue
        yield list_transactions.TransactionState(
            transactional_id=transactional_id,
            producer_id=known.producer_id,
            transaction_state=known.state.value,
        )


def matching(pattern: str, transactional_ids: list[str]) -> list[str]:
    """The ids that match a pattern as a whole; raises ValueError for an invalid pattern.

    Matching may take forever, so it runs in a worker process.
    """
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return [each for each in transactional_ids if expression.fullmatch(each)]

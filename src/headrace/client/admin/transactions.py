"""Transactions as their coordinators and the partitions know them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.admin.errors import not_found
from headrace.client.wire.cluster import BrokerAddress, ClusterClient, CoordinatorOf
from headrace.client.wire.errors import refused
from headrace.protocol.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from headrace.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.protocol.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
IDS_PER_REQUEST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id with its producer; the rest is set only while a transaction is open."""

    id: str
    state: str
    producer: int
    epoch: int | None = None
    coordinator: BrokerAddress
    timeout_ms: int | None = None
    started_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it has yet to be committed or aborted."""
        return self.state in OPEN_STATES

    def running_ms(self, now_ms: int) -> int | None:
        """How long it has been open."""
        return None if self.started_ms is None else max(0, now_ms - self.started_ms)


def list_transactions(
    cluster: ClusterClient, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
) -> list[Transaction]:
    """All transactional ids, asked of every broker, by name; the open ones in full."""
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids)
    )
    answers = cluster.ask_brokers(
        request, ListTransactionsResponse, lambda answer: (answer.error_code, None)
    )
    found: list[Transaction] = []
    for broker, answer in answers:
        rows = {
            row.transactional_id: Transaction(
                id=row.transactional_id,
                state=row.transaction_state,
                producer=row.producer_id,
                coordinator=broker,
            )
            for row in answer.transaction_states
        }
        rows.update(_describe(cluster, broker, [row.id for row in rows.values() if row.is_open]))
        found += rows.values()
    return sorted(found, key=lambda row: row.id)


def describe_transaction(cluster: ClusterClient, name: str) -> Transaction:
    """One transactional id in full; AdminError with the nearest name if there is none."""
    coordinator = cluster.coordinator(CoordinatorOf.TRANSACTION, name)
    try:
        answer = cluster.ask_coordinator(
            CoordinatorOf.TRANSACTION,
            name,
            DescribeTransactionsRequest(transactional_ids=[name]),
            DescribeTransactionsResponse,
            lambda answer: (answer.transaction_states[0].error_code, None),
        )
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        known = [row.id for row in list_transactions(cluster)]
        raise not_found("transactional id", name, known, "headrace txn list") from None
    return _transaction(answer.transaction_states[0], coordinator)


def _describe(
    cluster: ClusterClient, broker: BrokerAddress, names: list[str]
) -> Iterable[tuple[str, Transaction]]:
    for first in range(0, len(names), IDS_PER_REQUEST):
        request = DescribeTransactionsRequest(
            transactional_ids=names[first : first + IDS_PER_REQUEST]
        )
        answer = cluster.ask_broker(broker, request, DescribeTransactionsResponse)
        for row in answer.transaction_states:
            # One that has just expired keeps its row of the list.
            if not row.error_code:
                yield row.transactional_id, _transaction(row, broker)


def _transaction(row: TransactionState, coordinator: BrokerAddress) -> Transaction:
    return Transaction(
        id=row.transactional_id,
        state=row.transaction_state,
        producer=row.producer_id,
        epoch=row.producer_epoch,
        coordinator=coordinator,
        timeout_ms=row.transaction_timeout_ms,
        started_ms=row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        partitions=tuple(
            sorted((topic.topic, number) for topic in row.topics for number in topic.partitions)
        ),
    )


def read_producers(
    cluster: ClusterClient, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """The producers that partitions remember; a partition without a leader is left out."""
    wanted = set(keys)
    brokers = {broker.node_id: broker for broker in cluster.brokers()}
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in cluster.topics({name for name, _ in wanted}):
        for partition in topic.partitions:
            if topic.name and (topic.name, partition.partition_index) in wanted:
                by_leader[partition.leader_id][topic.name].append(partition.partition_index)
    found: dict[TopicPartition, list[ProducerState]] = {}
    for leader, topics in by_leader.items():
        if leader not in brokers:
            continue
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=topics[name]) for name in topics]
        )
        answer = cluster.ask_broker(brokers[leader], request, DescribeProducersResponse)
        for known in answer.topics:
            for described in known.partitions:
                if described.error_code:
                    raise refused(described.error_code, described.error_message)
                found[known.name, described.partition_index] = described.active_producers
    return dict(sorted(found.items()))

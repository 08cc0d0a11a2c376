"""TxnOffsetCommit (key 28), v0-5. v2: leader epoch. v3: flexible, member and generation (KIP-447).
v4: TRANSACTION_ABORTABLE. v5: adds the group to the transaction by itself (KIP-890).
"""

from __future__ import annotations

from headrace.broker.groups_shard import GroupShard
from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.broker.transactions_shard import TransactionShard
from headrace.coordinator.effects import Call, Now
from headrace.coordinator.transactions.coordinator import BUMPING_VERSION, TransactionCoordinator
from headrace.coordinator.transactions.effects import Producer, Result
from headrace.coordinator.txn_commits import refused_txn_commit
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.protocol.error_responses import coordinator_error
from headrace.protocol.errors import ErrorCode, KafkaError

LOADING_VERSION = 2
ABORTABLE_VERSION = 4
IMPLICIT_VERSION = 5


@serves(TxnOffsetCommitRequest, 0, 5)
def txn_offset_commit(
    node: Node, ctx: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Pending:
    """Store offsets that count once the transaction commits; responds when they are durable."""
    committing = Committing(node, ctx, request)
    return committing.start() or committing.pending


class Committing:
    """One request: first its transaction's coordinator, then its group's."""

    def __init__(self, node: Node, ctx: Context, request: TxnOffsetCommitRequest) -> None:
        self._node = node
        self._ctx = ctx
        self._request = request
        self._unknown = _sort_out(node, request)
        self.pending = Pending()

    def start(self) -> TxnOffsetCommitResponse | None:
        """Start; returns the response if there is nothing to wait for."""
        request, node = self._request, self._node
        if not request.topics:
            return self._refused(ErrorCode.NONE)
        try:
            groups = node.groups.shard_of(request.group_id)
            transactions = node.transactions.shard_of(request.transactional_id)
        except KafkaError as error:
            return self._refused(error.code)
        place = (CONSUMER_OFFSETS, groups.partition.index)
        producer = Producer(request.producer_id, request.producer_epoch)

        def step(coordinator: TransactionCoordinator, now: Now) -> Result:
            if self._ctx.api_version >= IMPLICIT_VERSION:
                return coordinator.add(
                    request.transactional_id, producer, (place,), BUMPING_VERSION, now
                )
            return coordinator.verified(request.transactional_id, producer, place)

        def stepped(error: ErrorCode, _: Producer) -> None:
            if error:
                admitted(error)
            else:
                transactions.when_over(request.transactional_id, admitted)

        def admitted(error: ErrorCode) -> None:
            # The responses may have changed in the meantime.
            error = error or groups.error or transactions.error
            error = error or transactions.coordinator.verify(
                request.transactional_id, producer, place
            )
            if error:
                self.pending.resolve(self._refused(error))
            else:
                self._commit(groups, transactions)

        transactions.attempt(request.transactional_id, step, stepped, early=True)
        return None

    def _commit(self, groups: GroupShard, transactions: TransactionShard) -> None:
        ctx = self._ctx
        stored = Pending()
        call = Call(stored, ctx.api_version, ctx.client_id or "", f"/{ctx.peer}", groups.now())
        groups.carry_out(groups.coordinator.commits.commit_in_transaction(self._request, call))

        def added(error: ErrorCode) -> None:
            if error:
                code = coordinator_error(error)
                self.pending.resolve(self._refused(code))
            else:
                response = stored.response
                assert isinstance(response, TxnOffsetCommitResponse)
                response.topics.extend(self._unknown.topics)
                self.pending.resolve(response)

        # The transaction must not lose its group while the offsets stay.
        transactions.when_durable(lambda error: stored.on_resolved(lambda _: added(error)))

    def _refused(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        version = self._ctx.api_version
        if error is ErrorCode.PRODUCER_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        elif error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
            error = ErrorCode.INVALID_TXN_STATE
        elif error is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_VERSION:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_VERSION:
            # The other error breaks these clients (KAFKA-7296).
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        response = refused_txn_commit(self._request, error)
        response.topics.extend(self._unknown.topics)
        return response


def _sort_out(node: Node, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Remove unknown partitions from the request; returns their part of the response."""
    known: list[TxnOffsetCommitRequestTopic] = []
    unknown: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        existing = [
            partition
            for partition in topic.partitions
            if node.partitions.exists(topic.name, partition.partition_index)
        ]
        missing = [partition for partition in topic.partitions if partition not in existing]
        if existing:
            known.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=existing))
        if missing:
            unknown.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=missing))
    request.topics = known
    return refused_txn_commit(
        TxnOffsetCommitRequest(topics=unknown), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )

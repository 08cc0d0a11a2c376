"""AddPartitionsToTxn (key 24), v0-5. v2: PRODUCER_FENCED. v3: flexible. v4: several transactions,
or only a check that the partitions are in them, for brokers (KIP-890). v5:
TRANSACTION_ABORTABLE.

The response leaves as soon as the partitions are in the coordinator's log: records written to them
are not acknowledged before that is durable.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.coordinator import BUMPING_VERSION, TransactionCoordinator
from headrace.coordinator.transactions.effects import Producer, Result
from headrace.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

FENCED_VERSION = 2
BATCH_VERSION = 4

Errors = dict[TopicPartition, ErrorCode]


@serves(AddPartitionsToTxnRequest, 0, 5)
def add_partitions_to_txn(
    node: Node, ctx: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Pending:
    """Add partitions to transactions: all partitions of a transaction, or none of them."""
    transactions = request.transactions
    if ctx.api_version < BATCH_VERSION:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        transactions = [only]
    results: dict[int, AddPartitionsToTxnResult] = {}
    pending = Pending()

    def done(number: int, result: AddPartitionsToTxnResult) -> None:
        results[number] = result
        if len(results) == len(transactions):
            pending.resolve(_response(ctx, [results[each] for each in sorted(results)]))

    for number, transaction in enumerate(transactions):
        _add(node, ctx, transaction, number, done)
    if not transactions:
        return AddPartitionsToTxnResponse()
    return pending


def _response(ctx: Context, results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    if ctx.api_version < BATCH_VERSION:
        topics = results[0].topic_results
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _add(
    node: Node,
    ctx: Context,
    transaction: AddPartitionsToTxnTransaction,
    number: int,
    done: Callable[[int, AddPartitionsToTxnResult], None],
) -> None:
    transactional_id = transaction.transactional_id
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    places = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]

    def respond(errors: Errors) -> None:
        done(number, _result(transaction, errors))

    def respond_all(error: ErrorCode, _: Producer) -> None:
        if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_VERSION:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        respond(dict.fromkeys(places, error))

    refused = _refused(node, ctx, places)
    if refused:
        respond(refused)
        return
    try:
        shard = node.transactions.shard_of(transactional_id)
    except KafkaError as error:
        respond(dict.fromkeys(places, error.code))
        return
    if transaction.verify_only:
        verify = shard.coordinator.verify
        respond({place: verify(transactional_id, producer, place) for place in places})
        return
    client_version = BUMPING_VERSION if ctx.api_version >= BATCH_VERSION else 0

    def step(coordinator: TransactionCoordinator, now: Now) -> Result:
        return coordinator.add(transactional_id, producer, places, client_version, now)

    shard.attempt(transactional_id, step, respond_all, early=True)


def _refused(node: Node, ctx: Context, places: list[TopicPartition]) -> Errors:
    """The partitions that cannot be added, and why; empty if all can be."""
    errors: Errors = {}
    for topic, index in places:
        partition = node.partitions.get(topic, index)
        if partition is None:
            errors[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.internal and ctx.api_version < BATCH_VERSION:
            errors[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if errors:
        for place in places:
            errors.setdefault(place, ErrorCode.OPERATION_NOT_ATTEMPTED)
    return errors


def _result(transaction: AddPartitionsToTxnTransaction, errors: Errors) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=errors[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )

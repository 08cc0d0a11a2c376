"""AddOffsetsToTxn (key 25), v0-4. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE.

Clients from KIP-890 on do without it: their TxnOffsetCommit adds the group itself.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import ApiResult, Context, serves
from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.coordinator import TransactionCoordinator
from headrace.coordinator.transactions.effects import Producer, Result
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.api.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import Message

FENCED_VERSION = 2


@serves(AddOffsetsToTxnRequest, 0, 4)
def add_offsets_to_txn(node: Node, ctx: Context, request: AddOffsetsToTxnRequest) -> ApiResult:
    """Add the partition that stores a group's offsets to the transaction."""
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if CONSUMER_OFFSETS not in node.catalog.topics:
        return _add_to_new_topic(node, ctx, request)
    return _add(node, ctx, request)


async def _add_to_new_topic(node: Node, ctx: Context, request: AddOffsetsToTxnRequest) -> Message:
    try:
        await node.groups.ensure_topic()
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    result = _add(node, ctx, request)
    return await result.wait() if isinstance(result, Pending) else result


def _add(node: Node, ctx: Context, request: AddOffsetsToTxnRequest) -> Message | Pending:
    place = (CONSUMER_OFFSETS, node.groups.partition_of(request.group_id))
    producer = Producer(request.producer_id, request.producer_epoch)

    def step(coordinator: TransactionCoordinator, now: Now) -> Result:
        return coordinator.add(request.transactional_id, producer, (place,), 0, now)

    def respond(error: ErrorCode, _: Producer) -> Message:
        if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_VERSION:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=error)

    return node.transactions.serve(request.transactional_id, step, respond, early=True)

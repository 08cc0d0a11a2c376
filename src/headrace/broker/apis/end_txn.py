"""EndTxn (key 26), v0-5. v2: PRODUCER_FENCED. v3: flexible. v4: TRANSACTION_ABORTABLE. v5: every
end raises the producer's epoch (KIP-890).
"""

from __future__ import annotations

import logging

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import ApiResult, Context, serves
from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.coordinator import BUMPING_VERSION, TransactionCoordinator
from headrace.coordinator.transactions.effects import NO_PRODUCER, Producer, Result
from headrace.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import Message

log = logging.getLogger(__name__)

FENCED_VERSION = 2
EPOCH_VERSION = 5


@serves(EndTxnRequest, 0, 5)
def end_txn(node: Node, ctx: Context, request: EndTxnRequest) -> ApiResult:
    """Commit or abort; responds when the decision is durable, and markers follow."""
    try:
        coordinator = node.transactions.shard_of(request.transactional_id).coordinator
    except KafkaError as error:
        return _response(ctx, error.code, NO_PRODUCER)
    if ctx.api_version >= EPOCH_VERSION and coordinator.needs_producer_id(request.transactional_id):
        return _end_with_new_id(node, ctx, request)
    return _end(node, ctx, request, NO_PRODUCER.id)


async def _end_with_new_id(node: Node, ctx: Context, request: EndTxnRequest) -> Message:
    """End a transaction whose producer has almost used up its epochs."""
    result = _end(node, ctx, request, await node.catalog.next_producer_id())
    return await result.wait() if isinstance(result, Pending) else result


def _end(
    node: Node, ctx: Context, request: EndTxnRequest, new_producer_id: int
) -> Message | Pending:
    producer = Producer(request.producer_id, request.producer_epoch)
    client_version = BUMPING_VERSION if ctx.api_version >= EPOCH_VERSION else 0

    def step(coordinator: TransactionCoordinator, now: Now) -> Result:
        result = coordinator.end(
            request.transactional_id,
            producer,
            request.committed,
            client_version,
            new_producer_id,
            now,
        )
        if result.error is ErrorCode.INVALID_TXN_STATE:
            # Fatal for many clients, so log it.
            known = coordinator.transactions.get(request.transactional_id)
            log.warning("refused EndTxn v%d %r: %r", ctx.api_version, request, known)
        return result

    return node.transactions.serve(
        request.transactional_id, step, lambda error, after: _response(ctx, error, after)
    )


def _response(ctx: Context, error: ErrorCode, producer: Producer) -> EndTxnResponse:
    if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error, producer_id=producer.id, producer_epoch=producer.epoch)

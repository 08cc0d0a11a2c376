"""InitProducerId (key 22), v0-5. v2: flexible. v3: a producer id and epoch to continue (KIP-360).
v4: PRODUCER_FENCED. v5: TRANSACTION_ABORTABLE.

Ids come from blocks that the catalog reserves, so an id is never given twice, not even after a
crash. A transactional producer keeps its id and gets a new epoch, which fences earlier producers
with the same transactional id; an open transaction is aborted first.
"""

from __future__ import annotations

from typing import cast

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.coordinator import TransactionCoordinator
from headrace.coordinator.transactions.effects import NO_PRODUCER, Producer, Result
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.errors import ErrorCode, KafkaError

FENCED_VERSION = 4


@serves(InitProducerIdRequest, 0, 5)
async def init_producer_id(
    node: Node, ctx: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Assign a producer id and epoch; those of a transactional id are durable by then."""
    if request.transactional_id is None:
        producer_id = await node.catalog.next_producer_id()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return await _init(node, ctx, request, request.transactional_id)


async def _init(
    node: Node, ctx: Context, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.id == NO_PRODUCER.id) is not (expected.epoch == NO_PRODUCER.epoch):
        return _response(ctx, ErrorCode.INVALID_REQUEST, NO_PRODUCER)
    new_producer_id = NO_PRODUCER.id
    try:
        coordinator = node.transactions.shard_of(transactional_id).coordinator
    except KafkaError as error:
        return _response(ctx, error.code, NO_PRODUCER)
    if coordinator.needs_producer_id(transactional_id):
        new_producer_id = await node.catalog.next_producer_id()

    def step(coordinator: TransactionCoordinator, now: Now) -> Result:
        return coordinator.init(
            transactional_id,
            request.transaction_timeout_ms,
            None if expected == NO_PRODUCER else expected,
            new_producer_id,
            now,
        )

    result = node.transactions.serve(
        transactional_id, step, lambda error, producer: _response(ctx, error, producer)
    )
    if isinstance(result, Pending):
        result = await result.wait()
    return cast(InitProducerIdResponse, result)


def _response(ctx: Context, error: ErrorCode, producer: Producer) -> InitProducerIdResponse:
    if error is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=producer.id, producer_epoch=producer.epoch
    )

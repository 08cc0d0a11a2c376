"""InitProducerId (key 22), v0-5. v2: flexible. v3: a producer id and epoch to go on with. v4: new
error code. v5: KIP-890.

Idempotent producers get ids from blocks that the catalog reserves, so an id is never given twice,
not even after a crash. Transactional producers need the transaction coordinator, which is not
there yet: they are told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.registry import handles
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.context import Context
    from headrace.broker.node import Node


@handles(InitProducerIdRequest, 0, 5)
async def init_producer_id(
    node: Node, ctx: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give out a fresh producer id with epoch 0."""
    if request.transactional_id is not None:
        if not request.transactional_id:
            error = ErrorCode.INVALID_REQUEST
        elif request.transaction_timeout_ms > node.settings.int("transaction.max.timeout.ms"):
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        else:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    producer_id = await node.catalog.next_producer_id()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

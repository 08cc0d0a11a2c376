"""ListTransactions (key 66), v0-2 (KIP-664). v1: by duration (KIP-994). v2: by pattern
(KIP-1152).
"""

from __future__ import annotations

import asyncio

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.broker.worker_processes import WorkerError
from headrace.coordinator.transactions.describe import STATE_NAMES, listed, matching
from headrace.protocol.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from headrace.protocol.errors import ErrorCode, KafkaError

PATTERN_SECONDS_MAX = 5.0


@serves(ListTransactionsRequest, 0, 2)
async def list_transactions(
    node: Node, ctx: Context, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactional ids that this broker coordinates."""
    unknown = [name for name in request.state_filters if name not in STATE_NAMES]
    states = frozenset(request.state_filters)
    producer_ids = frozenset(request.producer_id_filters)
    now_ms = node.clock.now_ms()
    try:
        found = [
            transaction
            for shard in node.transactions.shards()
            for transaction in listed(
                shard.coordinator.transactions,
                states,
                producer_ids,
                request.duration_filter,
                now_ms,
            )
        ]
        if request.transactional_id_pattern:
            found = await _matching(node, request.transactional_id_pattern, found)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=unknown)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


async def _matching(
    node: Node, pattern: str, found: list[TransactionState]
) -> list[TransactionState]:
    """Those whose id matches; raises KafkaError for a pattern that is invalid or takes too long."""
    ids = [transaction.transactional_id for transaction in found]
    try:
        async with asyncio.timeout(PATTERN_SECONDS_MAX):
            matched = frozenset(await node.workers.run(matching, pattern, ids))
    except (ValueError, TimeoutError) as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    except WorkerError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return [transaction for transaction in found if transaction.transactional_id in matched]

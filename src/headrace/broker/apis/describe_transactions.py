"""DescribeTransactions (key 65), v0 (KIP-664)."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.coordinator.transactions.describe import described
from headrace.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(DescribeTransactionsRequest, 0, 0)
def describe_transactions(
    node: Node, ctx: Context, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe the state, the producer and the partitions of transactional ids."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(node, each) for each in request.transactional_ids]
    )


def _describe(node: Node, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    try:
        shard = node.transactions.shard_of(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    known = shard.coordinator.transactions.get(transactional_id)
    if known is None:
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return described(transactional_id, known)

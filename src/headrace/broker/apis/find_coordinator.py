"""FindCoordinator (key 10), v0-6. v1: key type, throttle time. v3: flexible. v4: several keys.
v5: new error code. v6: share groups, which are not served here.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError

BATCH_VERSION = 4
GROUP_KEY = 0
TRANSACTION_KEY = 1
NO_NODE = -1


@serves(FindCoordinatorRequest, 0, 6)
async def find_coordinator(
    node: Node, ctx: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Find the coordinator of a group or a transactional id; its topic is created on first use."""
    batched = ctx.api_version >= BATCH_VERSION
    keys = request.coordinator_keys if batched else [request.key]
    try:
        if request.key_type == GROUP_KEY:
            await node.groups.ensure_topic()
        elif request.key_type == TRANSACTION_KEY:
            await node.transactions.ensure_topic()
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"coordinators of type {request.key_type} are not supported by this broker; "
                "only those of consumer groups (0) and transactions (1) are",
            )
    except KafkaError as error:
        found = [_not_found(key, error) for key in keys]
    else:
        found = [_this_node(node, key) for key in keys]
    if batched:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _this_node(node: Node, key: str) -> Coordinator:
    node_id = node.cluster.node_id
    address = next(broker for broker in node.cluster.brokers() if broker.node_id == node_id)
    return Coordinator(key=key, node_id=node_id, host=address.host, port=address.port)


def _not_found(key: str, error: KafkaError) -> Coordinator:
    retry = error.code.retriable
    return Coordinator(
        key=key,
        node_id=NO_NODE,
        port=-1,
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE if retry else error.code,
        error_message=error.message,
    )

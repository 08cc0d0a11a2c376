"""JoinGroup (key 11), v0-9. v1: rebalance timeout. v2: throttle time. v4: member id required
(KIP-394). v5: static members (KIP-345). v6: flexible. v7: protocol type. v8: reason (KIP-800).
v9: skip assignment (KIP-814).
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.rebalances import refused_join
from headrace.protocol.api.join_group import JoinGroupRequest
from headrace.protocol.schema import Message


@serves(JoinGroupRequest, 0, 9)
def join_group(node: Node, ctx: Context, request: JoinGroupRequest) -> Message | Pending:
    """Add a member to its group; responds when the join phase is over."""
    return node.groups.serve(
        ctx,
        request.group_id,
        lambda coordinator, call: coordinator.classic.join(request, call),
        lambda error: refused_join(error, request.member_id),
    )

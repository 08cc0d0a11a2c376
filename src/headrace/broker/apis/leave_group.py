"""LeaveGroup (key 13), v0-5. v1: throttle time. v3: several members, static ones too (KIP-345).
v4: flexible. v5: reason (KIP-800).
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.schema import Message


@serves(LeaveGroupRequest, 0, 5)
def leave_group(node: Node, ctx: Context, request: LeaveGroupRequest) -> Message | Pending:
    """Remove members from their group; the others rebalance."""
    return node.groups.serve(
        ctx,
        request.group_id,
        lambda coordinator, call: coordinator.classic.leave(request, call),
        lambda error: LeaveGroupResponse(error_code=error),
    )

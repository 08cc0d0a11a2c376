"""SyncGroup (key 14), v0-5. v1: throttle time. v3: static members (KIP-345). v4: flexible.
v5: protocol type and name.
"""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.schema import Message


@serves(SyncGroupRequest, 0, 5)
def sync_group(node: Node, ctx: Context, request: SyncGroupRequest) -> Message | Pending:
    """Return a member's assignment; responds when the assignments of all are durable."""
    return node.groups.serve(
        ctx,
        request.group_id,
        lambda coordinator, call: coordinator.classic.sync(request, call),
        lambda error: SyncGroupResponse(error_code=error),
    )

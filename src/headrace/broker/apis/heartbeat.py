"""Heartbeat (key 12), v0-4. v1: throttle time. v3: static members (KIP-345). v4: flexible."""

from __future__ import annotations

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(HeartbeatRequest, 0, 4)
def heartbeat(node: Node, ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend a member's session, and tell it whether to rejoin; never waits for the disk."""
    try:
        shard = node.groups.shard_of(request.group_id)
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Sessions start when loading is over: until then every member is alive.
            return HeartbeatResponse()
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse(error_code=shard.coordinator.classic.heartbeat(request, shard.now()))

"""JoinGroup (key 11), v0-9: a member enters a classic group or its next generation.

v1: rebalance timeout. v2: throttle time. v4: a new member must come back with the id it was given
(KIP-394). v5: instance id (KIP-345). v6: flexible. v7: protocol type in the answer. v8: reason. v9:
the leader may be told to skip the assignment.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, blob, boolean, int16, int32, string


class JoinGroupRequestProtocol(Message):
    name: str = string()
    metadata: bytes = blob()


class JoinGroupRequest(Message, key=11, versions="0-9", flexible=6):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Message):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: bytes = blob()


class JoinGroupResponse(Message, key=11, versions="0-9", flexible=6):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)

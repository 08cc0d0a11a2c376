"""SyncGroup (key 14), v0-5: the leader hands in the assignment, every member gets its part.

v1: throttle time. v3: instance id (KIP-345). v4: flexible. v5: protocol type and name, checked by
the broker.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, blob, int16, int32, string


class SyncGroupRequestAssignment(Message):
    member_id: str = string()
    assignment: bytes = blob()


class SyncGroupRequest(Message, key=14, versions="0-5", flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, key=14, versions="0-5", flexible=4):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: bytes = blob()

"""LeaveGroup (key 13), v0-5: members leave a classic group.

v1: throttle time. v3: many members at once, by instance id too. v4: flexible. v5: reason.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, int32, string


class MemberIdentity(Message):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible=4):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Message):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible=4):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")

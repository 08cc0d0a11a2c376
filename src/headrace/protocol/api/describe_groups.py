"""DescribeGroups (key 15), v0-6: state and members of classic groups.

v1: throttle time. v3: authorized operations. v4: instance ids. v5: flexible. v6: GROUP_ID_NOT_FOUND
with a message (KIP-1043).
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, blob, boolean, int16, int32, string


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible=5):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = blob()
    member_assignment: bytes = blob()


class DescribedGroup(Message):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible=5):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)

"""ListGroups (key 16), v0-5: the groups that a broker coordinates.

v1: throttle time. v3: flexible. v4: filter by state. v5: filter by type.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, int32, string


class ListGroupsRequest(Message, key=16, versions="0-5", flexible=3):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Message):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message, key=16, versions="0-5", flexible=3):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)

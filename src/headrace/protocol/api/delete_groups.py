"""DeleteGroups (key 42), v0-3: groups to delete.

v2: flexible. v3: error message.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, int32, string


class DeleteGroupsRequest(Message, key=42, versions="0-3", flexible=2):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Message):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="0+", default=None)


class DeleteGroupsResponse(Message, key=42, versions="0-3", flexible=2):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

"""ListConfigResources (key 74), v0-1: the resources that have settings.

v0: client metrics only. v1: every type, by filter (KIP-1142).
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible=0):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Message):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)

"""IncrementalAlterConfigs (key 44), v0-1: set, delete, append to or subtract from single settings.

v1: flexible.
"""

from __future__ import annotations

from headrace.protocol.api.alter_configs import AlterConfigsResourceResponse
from headrace.protocol.schema import Message, array, boolean, int8, int32, string


class AlterableConfig(Message):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible=1):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible=1):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

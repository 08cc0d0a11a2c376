"""CreateAcls (key 30), v0-3: new ACLs.

v1: pattern type. v2: flexible. v3: user resources.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int8, int16, int32, string


class AclCreation(Message):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, key=30, versions="0-3", flexible=2):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Message, key=30, versions="0-3", flexible=2):
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)

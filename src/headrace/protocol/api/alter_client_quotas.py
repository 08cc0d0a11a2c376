"""AlterClientQuotas (key 49), v0-1: set or remove quotas.

v1: flexible.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, boolean, float64, int16, int32, string


class EntityData(Message):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Message):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Message):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible=1):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryResult(Message):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible=1):
    throttle_time_ms: int = int32()
    entries: list[EntryResult] = array(EntryResult)

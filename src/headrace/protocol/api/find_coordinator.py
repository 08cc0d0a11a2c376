"""FindCoordinator (key 10), v0-6: which broker coordinates a group or a transactional id.

v1: key type, error message. v3: flexible. v4: many keys at once (KIP-699). v5:
TRANSACTION_ABORTABLE. v6: share groups.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible=3):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Message):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible=3):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="0+")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")

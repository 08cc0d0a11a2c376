"""DeleteTopics (key 20), v0-6: topics to delete.

v1: throttle time. v4: flexible. v5: error message. v6: topics by id or name.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, int32, string, uuid


class DeleteTopicState(Message):
    name: str | None = string(nullable="0+", default=None)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Message, key=20, versions="0-6", flexible=4):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Message):
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="0+", default=None)


class DeleteTopicsResponse(Message, key=20, versions="0-6", flexible=4):
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

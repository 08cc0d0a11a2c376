"""DeleteShareGroupOffsets (key 92), v0: delete the offsets of share groups in topics."""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible=0):
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )

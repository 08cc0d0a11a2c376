"""DeleteTopics (key 20), v0-6. v1: throttle time. v4: flexible. v5: error messages.
v6: topics by id.
"""

from __future__ import annotations

from collections import Counter

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ZERO_UUID

# The first version with an error code for a broker that deletes no topics.
DELETION_DISABLED = 3


@serves(DeleteTopicsRequest, 0, 6)
async def delete_topics(
    node: Node, ctx: Context, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics by name or by id, each independently."""
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter((topic.name, topic.topic_id) for topic in wanted)
    results = []
    for (name, topic_id), count in times.items():
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        try:
            if not node.settings.bool("delete.topic.enable"):
                raise KafkaError(
                    ErrorCode.TOPIC_DELETION_DISABLED
                    if ctx.api_version >= DELETION_DISABLED
                    else ErrorCode.INVALID_REQUEST,
                    "delete.topic.enable is false.",
                )
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            result.name, result.topic_id = _resolve(node, name, topic_id)
            await node.topics.delete(result.name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _resolve(node: Node, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
    """The name and id of the topic to delete."""
    if name is not None and topic_id != ZERO_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if name is not None:
        topic = node.catalog.get(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif topic_id != ZERO_UUID:
        topic = node.catalog.by_id(topic_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if topic is None:
        raise KafkaError(unknown)
    return topic.name, topic.id

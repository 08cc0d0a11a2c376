"""CreatePartitions (key 37), v0-3. v2: flexible. v3: quota errors."""

from __future__ import annotations

from collections import Counter

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from headrace.protocol.errors import ErrorCode, KafkaError


@serves(CreatePartitionsRequest, 0, 3)
async def create_partitions(
    node: Node, ctx: Context, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics; the response lists every topic of the request once."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        result = CreatePartitionsTopicResult(name=name)
        assignments = None
        if topic.assignments is not None:
            assignments = [each.broker_ids for each in topic.assignments]
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            await node.topics.add_partitions(
                name, topic.count, assignments, validate_only=request.validate_only
            )
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(results=results)

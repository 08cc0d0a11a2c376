"""CreateTopics (key 19), v0-7. v1: validate_only, error messages. v2: throttle time. v5:
flexible; the new topics with their settings (KIP-525). v6: quota errors. v7: topic ids.

-1 asks for the default number of partitions or replicas. KIP-464 allows it from v4, but Apache
Kafka accepts it in every version, and KafkaJS relies on that.
"""

from __future__ import annotations

from collections import Counter

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.config import topic_settings
from headrace.metadata import Topic
from headrace.metadata.planning import REPLICAS, NewTopic
from headrace.protocol.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ZERO_UUID


@serves(CreateTopicsRequest, 0, 7)
async def create_topics(
    node: Node, ctx: Context, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics, each independently."""
    times = Counter(topic.name for topic in request.topics)
    wanted = {topic.name: topic for topic in request.topics}
    outcomes: dict[str, Topic | KafkaError] = {}
    plans: list[NewTopic] = []
    for name, topic in wanted.items():
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            plans.append(_new_topic(topic))
        except KafkaError as error:
            outcomes[name] = error
    made = await node.topics.create(plans, validate_only=request.validate_only)
    outcomes |= {new.name: outcome for new, outcome in zip(plans, made, strict=True)}
    results = []
    for name in wanted:
        outcome = outcomes[name]
        if isinstance(outcome, KafkaError):
            results.append(_failed(name, outcome))
        else:
            results.append(_made(node, outcome, request.validate_only))
    return CreateTopicsResponse(topics=results)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    assignments = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual assignments for one partition.",
        )
    config = {each.name: each.value for each in topic.configs}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, config)


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        error_code=error.code,
        error_message=error.message,
        configs=[],
    )


def _made(node: Node, topic: Topic, validate_only: bool) -> CreatableTopicResult:
    settings = topic_settings(node.settings, topic.config)
    configs = [
        CreatableTopicConfigs(
            name=row.name,
            value=None if row.sensitive else settings.text(row.name),
            config_source=settings.source(row.name),
            is_sensitive=row.sensitive,
        )
        for row in settings.rows
    ]
    return CreatableTopicResult(
        name=topic.name,
        # A topic that was only validated has no id.
        topic_id=ZERO_UUID if validate_only else topic.id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=REPLICAS,
        configs=configs,
    )

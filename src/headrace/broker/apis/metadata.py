"""Metadata (key 3), v0-13. v1: controller, rack, internal topics; null (not empty) asks for all
topics. v2: cluster id. v3: throttle time. v4: allow_auto_topic_creation. v5: offline replicas.
v7: leader epochs. v8: authorized operations. v9: flexible. v10: topic ids in responses. v11: no
cluster operations. v12: topics by id. v13: an error for the whole response.

With `auto.create.topics.enable` an unknown topic is created before the response, with
`num.partitions`, so that clients need not ask again. A partition that is not served yet, or whose
disk failed, has no leader and LEADER_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence

from headrace.broker.apis.describe_cluster import CLUSTER_OPERATIONS
from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.metadata import Topic
from headrace.metadata.planning import NewTopic
from headrace.metadata.topic_names import INTERNAL, check_name
from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ZERO_UUID

# The first version that may name a topic only by its id.
BY_ID = 12
NO_LEADER = -1
# All operations on a topic, one bit each: read, write, create, delete, alter, describe, describe
# configs, alter configs. Without an authorizer every client may do all of them.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


@serves(MetadataRequest, 0, 13)
def metadata(
    node: Node, ctx: Context, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """List the brokers, and the leaders of the requested topics' partitions."""
    missing = _topics_to_create(node, request)
    if missing:
        return _create_and_answer(node, ctx, request, missing)
    return _answer(node, ctx, request, {})


def _asks_for_all(ctx: Context, request: MetadataRequest) -> bool:
    return request.topics is None or (ctx.api_version == 0 and not request.topics)


def _topics_to_create(node: Node, request: MetadataRequest) -> list[NewTopic]:
    """The unknown topics to create; internal topics are created only by their first use."""
    if not request.topics or not request.allow_auto_topic_creation:
        return []
    known = node.catalog.topics
    missing = {
        wanted.name: NewTopic(wanted.name)
        for wanted in request.topics
        if wanted.topic_id == ZERO_UUID
        and wanted.name is not None
        and wanted.name not in known
        and wanted.name not in INTERNAL
    }
    if not missing or not node.settings.bool("auto.create.topics.enable"):
        return []
    return list(missing.values())


async def _create_and_answer(
    node: Node, ctx: Context, request: MetadataRequest, missing: Sequence[NewTopic]
) -> MetadataResponse:
    outcomes = await node.topics.create(missing)
    errors = {
        new.name: outcome.code
        for new, outcome in zip(missing, outcomes, strict=True)
        # Another client may have created it in the meantime.
        if isinstance(outcome, KafkaError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS
    }
    return _answer(node, ctx, request, errors)


def _answer(
    node: Node, ctx: Context, request: MetadataRequest, errors: Mapping[str, ErrorCode]
) -> MetadataResponse:
    cluster = node.cluster
    if _asks_for_all(ctx, request):
        topics = [describe_topic(node, topic) for topic in node.catalog.topics.values()]
    else:
        topics = [_look_up(node, ctx, wanted, errors) for wanted in request.topics or ()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster.brokers()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _look_up(
    node: Node, ctx: Context, wanted: MetadataRequestTopic, errors: Mapping[str, ErrorCode]
) -> MetadataResponseTopic:
    name, topic_id = wanted.name, wanted.topic_id
    if (topic_id != ZERO_UUID or name is None) and ctx.api_version < BY_ID:
        # Versions 10 and 11 have the field, but do not support it (KAFKA-12701).
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id
        )
    if topic_id != ZERO_UUID:
        topic = node.catalog.by_id(topic_id)
        unknown, name = ErrorCode.UNKNOWN_TOPIC_ID, None
    elif name is not None:
        topic = node.catalog.get(name)
        unknown = errors.get(name) or unknown_topic_error(name)
    else:
        topic, unknown = None, ErrorCode.INVALID_REQUEST
    if topic is None:
        return MetadataResponseTopic(error_code=unknown, name=name, topic_id=topic_id)
    return describe_topic(node, topic)


def unknown_topic_error(name: str) -> ErrorCode:
    """Why there is no topic of this name: the name is invalid, or unknown."""
    try:
        check_name(name)
    except ValueError:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def describe_topic(
    node: Node, topic: Topic, indexes: Iterable[int] | None = None
) -> MetadataResponseTopic:
    """A topic with the leaders of its partitions."""
    this_node = node.cluster.node_id
    get = node.partitions.get
    partitions = []
    for index in range(topic.partitions) if indexes is None else indexes:
        partition = get(topic.name, index)
        if partition is not None and not partition.error:
            described = MetadataResponsePartition(
                partition_index=index,
                leader_id=this_node,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[this_node],
                isr_nodes=[this_node],
            )
        else:
            described = MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=NO_LEADER,
                replica_nodes=[this_node],
                offline_replicas=[this_node],
            )
        partitions.append(described)
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=topic.internal, partitions=partitions
    )

"""OffsetCommit (key 8), v2-10. v2-v4: retention time. v3: throttle time. v6: leader epoch.
v7: static members (KIP-345). v8: flexible. v9: errors of the new group protocol. v10: topic ids.
"""

from __future__ import annotations

from headrace.broker.commit_templates import CommitTemplates
from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.commits import refused_commit
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Call, Result
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

TOPIC_ID_VERSION = 10


@serves(OffsetCommitRequest, 2, 10, fast_path=CommitTemplates)
def offset_commit(node: Node, ctx: Context, request: OffsetCommitRequest) -> Message | Pending:
    """Store offsets; responds when they are durable."""
    refused = _sort_out(node, ctx, request)

    def commit(coordinator: GroupCoordinator, call: Call) -> Result:
        result = coordinator.commits.commit(request, call)
        for reply in result.replies:
            add_refused(reply.response, refused)
        return result

    return node.groups.serve(
        ctx,
        request.group_id,
        commit,
        lambda error: add_refused(refused_commit(request, error), refused),
        soon=True,
    )


def _sort_out(
    node: Node, ctx: Context, request: OffsetCommitRequest
) -> list[OffsetCommitResponseTopic]:
    """Remove unknown partitions from the request; returns their part of the response."""
    refused: list[OffsetCommitResponseTopic] = []
    kept: list[OffsetCommitRequestTopic] = []
    partitions = node.partitions
    for topic in request.topics:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if ctx.api_version >= TOPIC_ID_VERSION:
            error = ErrorCode.UNKNOWN_TOPIC_ID
            topic.name = partitions.name_of(topic.topic_id) or ""
        unknown: list[OffsetCommitRequestPartition] = []
        known: list[OffsetCommitRequestPartition] = []
        for partition in topic.partitions:
            exists = partitions.exists(topic.name, partition.partition_index)
            (known if exists else unknown).append(partition)
        if unknown:
            if topic.name:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic.partitions = known
            refused.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=error
                        )
                        for partition in unknown
                    ],
                )
            )
        if topic.partitions or not unknown:
            kept.append(topic)
    request.topics = kept
    return refused


def add_refused(response: Message, refused: list[OffsetCommitResponseTopic]) -> Message:
    """Merge the results of unknown partitions into the coordinator's response."""
    assert isinstance(response, OffsetCommitResponse)
    by_topic = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused:
        same = by_topic.setdefault((topic.name, topic.topic_id), topic)
        if same is topic:
            response.topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
    return response

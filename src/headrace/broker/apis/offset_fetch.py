"""OffsetFetch (key 9), v1-10. v2: all topics, group error. v3: throttle time. v5: leader epoch.
v6: flexible. v7: require stable (KIP-447). v8: several groups. v9: new group protocol.
v10: topic ids.
"""

from __future__ import annotations

from typing import cast

from headrace.broker.groups_shard import GroupShard
from headrace.broker.node import Node
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context, serves
from headrace.coordinator.commits import no_offset
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.protocol.error_responses import coordinator_error, failed_response
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import Message

GROUP_ERROR_VERSION = 2
BATCH_VERSION = 8
TOPIC_ID_VERSION = 10


@serves(OffsetFetchRequest, 1, 10)
def offset_fetch(node: Node, ctx: Context, request: OffsetFetchRequest) -> Message | Pending:
    """Return committed offsets; responds when they are durable."""
    fetching = Fetching(node, ctx, request)
    waits = {shard for shard in fetching.shards if not shard.is_durable}
    if not waits:
        return fetching.response()
    pending = Pending()
    for shard in tuple(waits):

        def on_durable(error: ErrorCode, shard: GroupShard = shard) -> None:
            waits.discard(shard)
            if error:
                fetching.fail(shard, error)
            if not waits:
                pending.resolve(fetching.response())

        shard.when_durable(on_durable)
    return pending


class Fetching:
    """The groups of one request, each read from its shard."""

    def __init__(self, node: Node, ctx: Context, request: OffsetFetchRequest) -> None:
        self._node = node
        self._version = ctx.api_version
        self._request = request
        self._groups: list[tuple[GroupShard | None, OffsetFetchResponseGroup]] = []
        groups = request.groups if self._version >= BATCH_VERSION else [_only_group(request)]
        for group in groups:
            try:
                shard = node.groups.shard_of(group.group_id)
            except KafkaError as error:
                refused = OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
                self._groups.append((None, refused))
            else:
                shard.write_open()
                self._groups.append((shard, self._fetch(shard, group, request.require_stable)))

    @property
    def shards(self) -> set[GroupShard]:
        """The shards whose results are in the response."""
        return {shard for shard, _ in self._groups if shard is not None}

    def fail(self, failed: GroupShard, error: ErrorCode) -> None:
        """Replace the results of a shard whose offsets may not survive a crash."""
        code = coordinator_error(error)
        self._groups = [
            (shard, OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            if shard is failed
            else (shard, group)
            for shard, group in self._groups
        ]

    def response(self) -> Message:
        """The response in the format of the request's version."""
        if self._version >= BATCH_VERSION:
            return OffsetFetchResponse(groups=[group for _, group in self._groups])
        group = self._groups[0][1]
        if group.error_code and self._version < GROUP_ERROR_VERSION:
            # The oldest clients look for errors only in the partitions.
            error = cast(ErrorCode, group.error_code)
            return failed_response(self._request, OffsetFetchResponse, self._version, error)
        return OffsetFetchResponse(
            error_code=group.error_code,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=partition.partition_index,
                            committed_offset=partition.committed_offset,
                            committed_leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.metadata,
                            error_code=partition.error_code,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in group.topics
            ],
        )

    def _fetch(
        self, shard: GroupShard, group: OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        fetch = shard.coordinator.commits.fetch
        if self._version < TOPIC_ID_VERSION:
            return fetch(group, require_stable=require_stable)
        unknown: list[OffsetFetchResponseTopics] = []
        if group.topics is not None:
            named = []
            for topic in group.topics:
                name = self._node.partitions.name_of(topic.topic_id)
                if name is None:
                    unknown.append(_unknown_topic(topic))
                else:
                    topic.name = name
                    named.append(topic)
            group.topics = named
        found = fetch(group, require_stable=require_stable)
        if group.topics is None:
            found.topics = [topic for topic in found.topics if self._identify(topic)]
        found.topics.extend(unknown)
        return found

    def _identify(self, topic: OffsetFetchResponseTopics) -> bool:
        """Set a topic's id; a deleted topic has none and is left out."""
        known = self._node.catalog.get(topic.name)
        if known is not None:
            topic.topic_id = known.id
        return known is not None


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group of an older request, in the current format."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _unknown_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            no_offset(partition, ErrorCode.UNKNOWN_TOPIC_ID)
            for partition in topic.partition_indexes
        ],
    )

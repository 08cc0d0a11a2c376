"""Groups and their committed offsets, read, committed and deleted at their coordinators.

Over our own wire: librdkafka neither waits for a coordinator that moves nor survives it (its issue
5040 is a crash).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from headrace.client.admin.errors import AdminError, not_found
from headrace.client.admin.partition_sets import PartitionSelection, is_selected
from headrace.client.wire.cluster import BrokerAddress, ClusterClient, CoordinatorOf
from headrace.client.wire.errors import refused
from headrace.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

# In these groups the members assign partitions themselves; in others the broker does.
CLASSIC = "classic"
EMPTY_STATES = ("Empty", "Dead")
# Prefix of the groups of Spark's exactly-once sink: their committed offsets are batch numbers, and
# nothing is read from there.
MARKERS = "headrace.sink."

# The last version that asks for one group, and by topic names.
OFFSET_FETCH_VERSION = 7
# The last version that goes by topic names.
OFFSET_COMMIT_VERSION = 9


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as its coordinator lists it; older brokers give neither state nor type."""

    group: str
    type: str | None
    protocol: str
    state: str | None
    coordinator: BrokerAddress

    @property
    def has_members(self) -> bool:
        """Whether it surely has members; a broker that gives no state refuses by itself."""
        return self.state not in (None, *EMPTY_STATES)


def list_groups(cluster: ClusterClient) -> list[GroupRow]:
    """All groups, asked of every broker, by name."""
    answers = cluster.ask_brokers(
        ListGroupsRequest(), ListGroupsResponse, lambda answer: (answer.error_code, None)
    )
    rows = [
        GroupRow(
            group=group.group_id,
            type=group.group_type.lower() or None,
            protocol=group.protocol_type,
            state=group.group_state or None,
            coordinator=broker,
        )
        for broker, answer in answers
        for group in answer.groups
    ]
    return sorted(rows, key=lambda row: row.group)


def find_groups(cluster: ClusterClient, names: list[str]) -> list[GroupRow]:
    """The groups of these names; AdminError with the nearest name if one does not exist."""
    known = {row.group: row for row in list_groups(cluster)}
    for name in names:
        if name not in known:
            raise no_group(name, known)
    return [known[name] for name in names]


def no_group(name: str, known: Iterable[str]) -> AdminError:
    """The error of a group that does not exist."""
    return not_found("group", name, known, "headrace group list")


def read_committed(cluster: ClusterClient, group: str) -> dict[TopicPartition, int]:
    """The offsets that a group has committed; empty for a group that does not exist."""
    answer = cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        OffsetFetchRequest(group_id=group, topics=None),
        OffsetFetchResponse,
        lambda answer: (answer.error_code or _first_error(answer), None),
        OFFSET_FETCH_VERSION,
    )
    offsets = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }
    return dict(sorted(offsets.items()))


def commit_offsets(
    cluster: ClusterClient, group: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Commit offsets for a group without members; durable when this returns."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offsets[topic, number]
                )
                for _, number in partitions
            ],
        )
        for topic, partitions in groupby(sorted(offsets), key=lambda partition: partition[0])
    ]
    cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        OffsetCommitRequest(group_id=group, topics=topics),
        OffsetCommitResponse,
        lambda answer: (_first_error(answer), None),
        OFFSET_COMMIT_VERSION,
    )


def delete_group(cluster: ClusterClient, name: str) -> None:
    """Delete a group; AdminError if it has members."""
    try:
        cluster.ask_coordinator(
            CoordinatorOf.GROUP,
            name,
            DeleteGroupsRequest(groups_names=[name]),
            DeleteGroupsResponse,
            lambda answer: (answer.results[0].error_code, answer.results[0].error_message),
        )
    except KafkaError as refusal:
        if refusal.code is not ErrorCode.NON_EMPTY_GROUP:
            raise
        raise AdminError(
            f"group {name!r} has members",
            f"stop them first; headrace group describe {name} lists them",
        ) from None


def delete_offsets(cluster: ClusterClient, name: str, selection: PartitionSelection) -> int:
    """Delete the offsets of a group in partitions that no member reads; returns how many."""
    partitions = [
        partition
        for partition in read_committed(cluster, name)
        if is_selected(*partition, selection)
    ]
    if not partitions:
        raise AdminError(
            f"group {name!r} has no offsets in the selected partitions",
            f"headrace group describe {name} shows its offsets",
        )
    topics = {
        topic: [
            OffsetDeleteRequestPartition(partition_index=number)
            for owner, number in partitions
            if owner == topic
        ]
        for topic, _ in partitions
    }
    answer = cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        name,
        OffsetDeleteRequest(
            group_id=name,
            topics=[
                OffsetDeleteRequestTopic(name=topic, partitions=rows)
                for topic, rows in topics.items()
            ],
        ),
        OffsetDeleteResponse,
        lambda answer: (answer.error_code, None),
    )
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise AdminError(
                    f"group {name!r} has members that read {topic.name}",
                    f"stop them first; headrace group describe {name} lists them",
                )
            if partition.error_code:
                raise refused(partition.error_code)
    return len(partitions)


def _first_error(answer: OffsetFetchResponse | OffsetCommitResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return next(filter(None, codes), 0)

"""The groups of a cluster, and how far each has read, asked directly of their coordinators.

Committed offsets go over our own wire: the library neither waits for a coordinator that is on the
move nor survives it (librdkafka issue 5040: it crashes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from headrace.client.wire.cluster import BrokerAddress, Cluster, CoordinatorOf
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headrace.protocol.partitions import TopicPartition

# Members of these share out the partitions among themselves; in others the broker does.
CLASSIC = "classic"
EMPTY_STATES = ("Empty", "Dead")
# So begin the groups of the exactly-once sink of Spark: the offsets they commit are numbers of
# batches, not places that anybody reads from.
MARKERS = "headrace.sink."

# The last version that asks for one group, and by topic names.
FETCH_VERSION = 7
# The last version that goes by topic names.
COMMIT_VERSION = 9


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as its coordinator lists it; older brokers say neither state nor type."""

    group: str
    type: str | None
    protocol: str
    state: str | None
    coordinator: BrokerAddress

    @property
    def has_members(self) -> bool:
        """Whether it surely has; a broker that does not tell will refuse by itself."""
        return self.state not in (None, *EMPTY_STATES)


def list_groups(cluster: Cluster) -> list[GroupRow]:
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


def read_committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """The offsets that a group has committed; nothing for a group that is not there."""
    answer = cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        OffsetFetchRequest(group_id=group, topics=None),
        OffsetFetchResponse,
        lambda answer: (answer.error_code or _first_error(answer), None),
        FETCH_VERSION,
    )
    places = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    }
    return dict(sorted(places.items()))


def commit_offsets(cluster: Cluster, group: str, places: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a group without members; durable when this returns."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=places[topic, partition]
                )
                for _, partition in keys
            ],
        )
        for topic, keys in groupby(sorted(places), key=lambda key: key[0])
    ]
    cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        OffsetCommitRequest(group_id=group, topics=topics),
        OffsetCommitResponse,
        lambda answer: (_first_error(answer), None),
        COMMIT_VERSION,
    )


def _first_error(answer: OffsetFetchResponse | OffsetCommitResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return next(filter(None, codes), 0)

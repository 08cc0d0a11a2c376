"""The offsets that a group has finished with, written for a group that has no members."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from headrace.client.cluster import Cluster, CoordinatorOf
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

# The last version that goes by topic names.
COMMIT_VERSION = 9


def commit(cluster: Cluster, group: str, places: Mapping[tuple[str, int], int]) -> None:
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


def _first_error(answer: OffsetCommitResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return next(filter(None, codes), 0)

"""Having a coordinator forget groups and offsets."""

from __future__ import annotations

from headrace.cli.common.errors import CliError
from headrace.cli.common.partition_sets import Selection, is_selected
from headrace.client.admin.groups import read_committed
from headrace.client.wire.cluster import Cluster, CoordinatorOf
from headrace.client.wire.errors import refused
from headrace.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError


def delete_group(cluster: Cluster, name: str) -> None:
    """Delete a group that has no members."""
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
        raise CliError(
            f"group {name!r} has members",
            f"stop them first; headrace group describe {name} lists them",
        ) from None


def delete_offsets(cluster: Cluster, name: str, selection: Selection) -> int:
    """Forget the offsets of a group in partitions that no member of it reads; how many."""
    keys = [key for key in read_committed(cluster, name) if is_selected(*key, selection)]
    if not keys:
        raise CliError(
            f"group {name!r} has no offsets there",
            f"headrace group describe {name} shows those that it has",
        )
    topics = {
        topic: [
            OffsetDeleteRequestPartition(partition_index=partition)
            for owner, partition in keys
            if owner == topic
        ]
        for topic, _ in keys
    }
    answer = cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        name,
        OffsetDeleteRequest(
            group_id=name,
            topics=[
                OffsetDeleteRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        ),
        OffsetDeleteResponse,
        lambda answer: (answer.error_code, None),
    )
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                raise CliError(
                    f"group {name!r} has members that read {topic.name}",
                    f"stop them first; headrace group describe {name} lists them",
                )
            if partition.error_code:
                raise refused(partition.error_code)
    return len(keys)

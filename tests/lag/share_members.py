"""A member of a share group (KIP-932) that only says that it is there, and where a group begins."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Self

from headrace.client.wire.cluster import ClusterClient, CoordinatorOf
from headrace.protocol.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from headrace.protocol.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

LEAVE = -1


class ShareMember:
    """In the group from its first beat to the end of the block."""

    def __init__(self, cluster: ClusterClient, group: str, topic: str) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._id = str(uuid.uuid4())
        self._epoch = 0

    def beat(self) -> bool:
        """Say that it is there; True once it has partitions."""
        answer = self._say(self._epoch)
        self._epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._say(LEAVE)

    def _say(self, epoch: int) -> ShareGroupHeartbeatResponse:
        return self._cluster.ask_coordinator(
            CoordinatorOf.GROUP,
            self._group,
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._id,
                member_epoch=epoch,
                subscribed_topic_names=[self._topic] if epoch == 0 else None,
            ),
            ShareGroupHeartbeatResponse,
            lambda answer: (answer.error_code, answer.error_message),
        )


def begin_at(cluster: ClusterClient, group: str, topic: str, offset: int) -> None:
    """Have a share group without members begin at an offset of partition 0."""
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    cluster.ask_coordinator(
        CoordinatorOf.GROUP,
        group,
        AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])],
        ),
        AlterShareGroupOffsetsResponse,
        lambda answer: (
            answer.error_code or answer.responses[0].partitions[0].error_code,
            answer.error_message,
        ),
    )

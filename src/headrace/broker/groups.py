"""The groups that this node coordinates, in the shards of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.broker.groups_shard import GroupShard
from headrace.broker.purgatory import Pending
from headrace.broker.sharding import ShardedCoordinator
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Call, Rebalance, Result
from headrace.coordinator.settings import GroupSettings
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition
    from headrace.broker.registry import Context
    from headrace.config import Settings

MINUTE_MS = 60_000

log = logging.getLogger(__name__)


class GroupService(ShardedCoordinator[GroupShard]):
    """All groups that this node coordinates."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        super().__init__(
            node,
            CONSUMER_OFFSETS,
            settings.int("offsets.topic.num.partitions"),
            settings.int("offsets.retention.check.interval.ms"),
        )
        self.codec = settings.int("offsets.topic.compression.codec")
        self.commit_timeout_ms = settings.int("offsets.commit.timeout.ms")
        self._settings = group_settings(settings)

    def topic_config(self) -> Mapping[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.node.settings.int("offsets.topic.segment.bytes")),
        }

    def new_shard(self, partition: Partition) -> GroupShard:
        coordinator = GroupCoordinator(self._settings, new_member_suffix)
        return GroupShard(self, partition, coordinator)

    def serve(
        self,
        ctx: Context,
        group_id: str,
        step: Callable[[GroupCoordinator, Call], Result],
        refusal: Callable[[ErrorCode], Message],
        *,
        soon: bool = False,
    ) -> Message | Pending:
        """Run one step of a group's coordinator; the response comes when its effects are durable.

        `soon` lets commits share a batch, and the connection continue with its next request.
        """
        try:
            shard = self.shard_of(group_id)
        except KafkaError as error:
            return refusal(error.code)
        pending = Pending(blocks=not soon)
        call = Call(pending, ctx.api_version, ctx.client_id or "", f"/{ctx.peer}", shard.now())
        if soon:
            shard.carry_out_soon(step(shard.coordinator, call))
        else:
            shard.write_open()
            shard.carry_out(step(shard.coordinator, call))
        return pending

    def note(self, rebalances: list[Rebalance]) -> None:
        """Count and log rebalances with their causes."""
        for rebalance in rebalances:
            self.node.metrics.rebalances.of(rebalance.cause.value).value += 1
            log.info("group %r rebalances: %r", rebalance.group_id, rebalance.reason)

    def topic_deleted(self, topic: str) -> None:
        """Remove the offsets of a deleted topic, which a new one must not inherit."""
        for shard in self._shards.values():
            if not shard.error:
                shard.write_open()
                shard.carry_out(Result(records=list(shard.coordinator.commits.forget_topic(topic))))


def group_settings(settings: Settings) -> GroupSettings:
    """The coordinator's settings, from the broker's."""
    return GroupSettings(
        session_timeout_ms_min=settings.int("group.min.session.timeout.ms"),
        session_timeout_ms_max=settings.int("group.max.session.timeout.ms"),
        group_size_max=settings.int("group.max.size"),
        initial_rebalance_delay_ms=settings.int("group.initial.rebalance.delay.ms"),
        offset_metadata_bytes_max=settings.int("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.int("offsets.retention.minutes") * MINUTE_MS,
    )


def new_member_suffix() -> str:
    """The random part of a member id."""
    return str(uuid4())

"""The group coordinator of a node: finds a group's shard, keeps `__consumer_offsets`, expires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.broker.groups_shard import Shard
from headrace.broker.pending import Pending
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Call, Rebalance, Result
from headrace.coordinator.partitioning import partition_for
from headrace.coordinator.settings import GroupSettings
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.context import Context
    from headrace.broker.node import Node
    from headrace.config import Settings

MINUTE_MS = 60_000
# A start waits this long for the groups to be loaded; what takes longer goes on beside serving.
LOAD_GRACE_SECONDS = 1.0

log = logging.getLogger(__name__)

# Clients ask for the same groups again and again; the hash of a name costs as much as a heartbeat.
_partition_for = lru_cache(maxsize=10_000)(partition_for)


class GroupService:
    """All groups that this node coordinates."""

    def __init__(self, node: Node) -> None:
        self.node = node
        settings = node.settings
        self.codec = settings.int("offsets.topic.compression.codec")
        self.commit_timeout_ms = settings.int("offsets.commit.timeout.ms")
        self._settings = group_settings(settings)
        self._partition_count = settings.int("offsets.topic.num.partitions")
        self._expire_interval_ms = settings.int("offsets.retention.check.interval.ms")
        # By partition; one whose disk is offline is missing.
        self._shards: dict[int, Shard] = {}
        self._creating = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # Life.

    async def start(self) -> None:
        """Load the groups; a long log goes on loading while the node serves."""
        self._schedule_expiry()
        if CONSUMER_OFFSETS in self.node.catalog.topics:
            loading = self._open_shards()
            await asyncio.wait([loading], timeout=LOAD_GRACE_SECONDS)

    async def close(self) -> None:
        """Answer everybody who waits for a group, and write what is still open."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        for shard in self._shards.values():
            shard.write_open()
            shard.unload()

    def _open_shards(self) -> asyncio.Task[None]:
        count = self.node.catalog.topics[CONSUMER_OFFSETS].partitions
        shards: dict[int, Shard] = {}
        for index in range(count):
            partition = self.node.partitions.get(CONSUMER_OFFSETS, index)
            if partition is not None:  # else its disk is offline
                coordinator = GroupCoordinator(self._settings, new_member_suffix)
                shards[index] = Shard(self, partition, coordinator)
        self._partition_count = count
        self._shards = shards
        task = self.node.loop.create_task(self._load(shards.values()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, shards: Iterable[Shard]) -> None:
        # Those without records first: new groups need not wait for old ones.
        for shard in sorted(shards, key=lambda shard: shard.partition.log.size_bytes):
            await shard.load()

    async def ensure_topic(self) -> None:
        """Make `__consumer_offsets` if it is not there; KafkaError if it cannot be.

        Durable when it returns; on cancel it is made all the same.
        """
        async with self._creating:
            if CONSUMER_OFFSETS not in self.node.catalog.topics:
                await self._create_topic()
            if not self._shards:
                await self._open_shards()

    async def _create_topic(self) -> None:
        settings = self.node.settings
        await self.node.topics.create_internal(
            CONSUMER_OFFSETS,
            partitions=settings.int("offsets.topic.num.partitions"),
            config={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
            },
        )

    # Requests.

    def shard_of(self, group_id: str) -> Shard:
        """The shard of a group; KafkaError when it cannot be asked now."""
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(_partition_for(group_id, self._partition_count))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.error:
            raise KafkaError(shard.error)
        return shard

    def shards(self) -> Iterable[Shard]:
        """Every shard that can be asked now; KafkaError while some are still loading."""
        for shard in self._shards.values():
            if shard.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaError(shard.error)
            if not shard.error:
                yield shard

    def serve(
        self,
        ctx: Context,
        group_id: str,
        step: Callable[[GroupCoordinator, Call], Result],
        refusal: Callable[[ErrorCode], Message],
        *,
        soon: bool = False,
    ) -> Message | Pending:
        """Run one step of the coordinator and carry its effects out; answered when they are.

        `soon` lets commits share a batch, and lets the connection go on with its next request.
        """
        try:
            shard = self.shard_of(group_id)
        except KafkaError as error:
            return refusal(error.code)
        answer = Pending(holds_line=not soon)
        call = Call(answer, ctx.api_version, ctx.client_id or "", f"/{ctx.peer}", shard.now())
        if soon:
            shard.carry_out_soon(step(shard.coordinator, call))
        else:
            shard.write_open()
            shard.carry_out(step(shard.coordinator, call))
        return answer

    def note(self, rebalances: list[Rebalance]) -> None:
        """Count and tell why groups rebalance."""
        for rebalance in rebalances:
            self.node.metrics.rebalances.value += 1
            log.info("group %r rebalances: %r", rebalance.group_id, rebalance.reason)

    # Housekeeping.

    def topic_deleted(self, topic: str) -> None:
        """Forget the offsets of a topic that is gone, lest one of the same name inherit them."""
        for shard in self._shards.values():
            if not shard.error:
                shard.write_open()
                shard.carry_out(Result(records=list(shard.coordinator.commits.forget_topic(topic))))

    def _schedule_expiry(self) -> None:
        self.node.timers.call_later(self._expire_interval_ms, self._expire)

    def _expire(self) -> None:
        if self._closed:
            return
        for shard in self._shards.values():
            if not shard.error:
                shard.expire_offsets()
        self._schedule_expiry()


def group_settings(settings: Settings) -> GroupSettings:
    """The coordinator's settings out of the broker's."""
    return GroupSettings(
        session_timeout_ms_min=settings.int("group.min.session.timeout.ms"),
        session_timeout_ms_max=settings.int("group.max.session.timeout.ms"),
        group_size_max=settings.int("group.max.size"),
        initial_rebalance_delay_ms=settings.int("group.initial.rebalance.delay.ms"),
        offset_metadata_bytes_max=settings.int("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.int("offsets.retention.minutes") * MINUTE_MS,
    )


def new_member_suffix() -> str:
    """What makes a member's id its own."""
    return str(uuid4())

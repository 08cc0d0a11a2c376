"""A coordinator of many shards: its topic, created on first use, and the shard of each key."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.broker.shard import Shard
from headrace.coordinator.partitioning import partition_for
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition

ShardT = TypeVar("ShardT", bound=Shard[Any])

# A start waits this long for the shards to load; longer loading continues in the background.
LOAD_GRACE_SECONDS = 1.0

# Clients use the same keys again and again, and the hash of a name costs as much as a heartbeat.
_partition_for = lru_cache(maxsize=10_000)(partition_for)


class ShardedCoordinator(ABC, Generic[ShardT]):
    """All shards of one coordinator on this node."""

    def __init__(
        self, node: Node, topic: str, partition_count: int, expire_interval_ms: int
    ) -> None:
        self.node = node
        self._topic = topic
        self._partition_count = partition_count
        self._expire_interval_ms = expire_interval_ms
        # By partition; one whose disk is offline is missing.
        self._shards: dict[int, ShardT] = {}
        self._creating = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @abstractmethod
    def topic_config(self) -> Mapping[str, str]:
        """The settings of the coordinator's topic."""

    @abstractmethod
    def new_shard(self, partition: Partition) -> ShardT:
        """Make the shard of a partition, not yet loaded."""

    def loaded(self) -> None:
        """Called once every shard that can be loaded is."""

    async def start(self) -> None:
        """Load the shards; a long log continues loading while the node serves."""
        self.node.coordinators.append(self)
        self._schedule_expiry()
        if self._topic in self.node.catalog.topics:
            loading = self._open_shards()
            await asyncio.wait([loading], timeout=LOAD_GRACE_SECONDS)
        else:
            self.loaded()

    async def close(self) -> None:
        """Write what is still open, and respond to every request that waits for a shard."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        for shard in self._shards.values():
            shard.write_open()
            shard.unload()

    def unload_offline(self) -> None:
        """Stop the shards whose disk has failed.

        Requests that wait for the disk have a response already; this is for timers, and for members
        that wait for each other.
        """
        for shard in self._shards.values():
            if shard.is_loaded and shard.partition.error:
                shard.unload()

    def _schedule_expiry(self) -> None:
        self.node.timers.call_later(self._expire_interval_ms, self._expire)

    def _expire(self) -> None:
        if self._closed:
            return
        for shard in self._shards.values():
            if not shard.error:
                shard.expire()
        self._schedule_expiry()

    def _open_shards(self) -> asyncio.Task[None]:
        count = self.node.catalog.topics[self._topic].partitions
        shards: dict[int, ShardT] = {}
        for index in range(count):
            partition = self.node.partitions.get(self._topic, index)
            if partition is not None:  # else its disk is offline
                shards[index] = self.new_shard(partition)
        self._partition_count = count
        self._shards = shards
        task = self.node.loop.create_task(self._load(shards.values()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, shards: Iterable[ShardT]) -> None:
        # Small ones first: a new shard need not wait for an old one.
        for shard in sorted(shards, key=lambda shard: shard.partition.log.size_bytes):
            await shard.load()
        self.loaded()

    async def ensure_topic(self) -> None:
        """Create the topic if needed; raises KafkaError if it cannot be created.

        Durable when it returns; on cancel it is still created.
        """
        async with self._creating:
            if self._topic not in self.node.catalog.topics:
                await self.node.topics.create_internal(
                    self._topic, partitions=self._partition_count, config=self.topic_config()
                )
            if not self._shards:
                await self._open_shards()

    @property
    def is_complete(self) -> bool:
        """Whether every shard can be used; true before the topic is created."""
        topic = self.node.catalog.topics.get(self._topic)
        return topic is None or (
            len(self._shards) == topic.partitions
            and not any(shard.error for shard in self._shards.values())
        )

    def partition_of(self, key: str) -> int:
        """The partition of the topic that stores a key."""
        return _partition_for(key, self._partition_count)

    def shard_of(self, key: str) -> ShardT:
        """The shard of a key; raises KafkaError if it cannot be used now."""
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(_partition_for(key, self._partition_count))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if shard.error:
            raise KafkaError(shard.error)
        return shard

    def shard_at(self, index: int) -> ShardT | None:
        """The shard of a partition, in any state."""
        return self._shards.get(index)

    def shards(self) -> Iterable[ShardT]:
        """Every shard that can be used now; raises KafkaError while some are still loading."""
        for shard in self._shards.values():
            if shard.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaError(shard.error)
            if not shard.error:
                yield shard

"""A partition that this broker leads: its log, how far it is durable, and when it is synced.

With `flush.messages=1` (the default) a record counts, for acks=all and for readers, once it is
synced: the high watermark follows the sync. A sync starts at once when a request waits for it, else
within `flush.ms`, so many appends share one. With a larger `flush.messages` the high watermark
follows the write, and a sync starts after this many messages or `flush.ms`.
"""

from __future__ import annotations

import asyncio
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.purgatory import Waiting
from headrace.metadata.topic_names import INTERNAL
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import AppendInfo, Log, Origin
from headrace.storage.files import is_passing

if TYPE_CHECKING:
    from headrace.broker.node import Node

# How long a request for the end of a log waits for a sync.
DURABLE_TIMEOUT_MS = 30_000
# A `flush.ms` of 24 days or more means never: the loop's timers cannot count it.
FLUSH_MS_NEVER = 2**31


class DurableWaiting(Waiting):
    """A task that waits until the log is durable up to an offset."""

    __slots__ = ("_end_offset", "_partition", "future")

    def __init__(self, partition: Partition, end_offset: int) -> None:
        super().__init__()
        self._partition = partition
        self._end_offset = end_offset
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def try_complete(self) -> bool:
        if self._partition.log.high_watermark >= self._end_offset:
            if not self.future.done():
                self.future.set_result(None)
            return True
        error = self._partition.error
        if error:
            self._refuse(error)
        return bool(error)

    def expire(self) -> None:
        self._refuse(ErrorCode.REQUEST_TIMED_OUT)

    def fail(self) -> None:
        self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _refuse(self, error: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_exception(KafkaError(error))


class Partition:
    """One led partition."""

    __slots__ = (
        "_node",
        "_sync_asked",
        "_sync_asked_ns",
        "_sync_timer",
        "deleted",
        "index",
        "internal",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(self, node: Node, topic: str, topic_id: bytes, index: int, log: Log) -> None:
        self._node = node
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = node.cluster.leader_epoch(topic, index)
        self.deleted = False
        self.internal = topic in INTERNAL
        self._sync_asked = False
        self._sync_asked_ns = 0
        self._sync_timer: asyncio.TimerHandle | None = None

    @property
    def error(self) -> ErrorCode:
        """Why this partition cannot be used now, or NONE."""
        if self.deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.log.offline_error:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def check(self, leader_epoch: int) -> None:
        """Raise KafkaError unless a client of this epoch can use the partition (KIP-320)."""
        error = self.error
        if not error and leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            behind = leader_epoch < self.leader_epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH
        if error:
            raise KafkaError(error)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and the offset where it ended; (-1, -1) if unknown."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def append(
        self,
        data: memoryview,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        keys_checked: bool = False,
    ) -> AppendInfo:
        """Write batches at the end; durable once `high_watermark` has passed them.

        Raises KafkaError if a batch is refused or cannot be written; then nothing was written.
        """
        log = self.log
        try:
            info = log.append(
                data,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                keys_checked=keys_checked,
            )
        except OSError as error:
            if not is_passing(error):
                self._node.fail_log_dir(self.log.dir, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {error}") from error
        if not info.duplicate:
            self._node.metrics.records_in.value += info.last_offset - info.base_offset + 1
            self._written()
        return info

    async def durable_end(self) -> None:
        """Wait until all that is written by now is durable, so that the client sees it.

        A producer with acks=1 has its response before the sync; when it then asks for the end, its
        own record must be there. Raises KafkaError if the disk fails or takes too long.
        """
        if self.has_unsynced:
            waiting = DurableWaiting(self, self.log.end_offset)
            self._node.produce_purgatory.park(waiting, (self,), DURABLE_TIMEOUT_MS)
            self.sync()
            await waiting.future

    @property
    def opaque(self) -> bool:
        """Whether batches are stored as they are sent, without reading their records."""
        config = self.log.config
        return config.compression_type == "producer" and not config.is_compacted

    @property
    def allows_templates(self) -> bool:
        """Whether only the log itself may refuse a batch."""
        return self.opaque and not self.internal and self.log.config.min_insync_replicas <= 1

    @property
    def has_unsynced(self) -> bool:
        """Whether records are written that readers do not see yet."""
        return self.log.high_watermark < self.log.end_offset

    @property
    def is_awaited(self) -> bool:
        """Whether a producer or a reader at the end waits for this partition."""
        node = self._node
        return node.produce_purgatory.has_waiting(self) or node.fetch_purgatory.has_waiting(self)

    def wake(self) -> None:
        """Check the requests that wait for this partition, after a change."""
        self._node.produce_purgatory.check(self)
        self._node.fetch_purgatory.check(self)

    def sync(self) -> None:
        """Request a sync of all that is written; at most one is in flight at a time."""
        if not self._sync_asked and not self.deleted:
            self._sync_asked = True
            self._sync_asked_ns = perf_counter_ns()
            self._node.syncer.request(self.log, self._synced)

    def _written(self) -> None:
        log = self.log
        flush_messages = log.config.flush_messages
        if flush_messages > 1:
            log.high_watermark = log.end_offset
            self.wake()
            if log.end_offset - log.synced_offset >= flush_messages:
                self.sync()
                return
        elif self.is_awaited:
            self.sync()
            return
        if self._sync_timer is None and not self._sync_asked:
            delay_ms = log.config.flush_ms
            if delay_ms < FLUSH_MS_NEVER:
                loop = self._node.loop
                self._sync_timer = loop.call_later(delay_ms / 1000, self._flush_due)

    def _flush_due(self) -> None:
        self._sync_timer = None
        if self.log.synced_offset < self.log.end_offset:
            self.sync()

    def _synced(self, error: OSError | None) -> None:
        """The sync is over (on the loop thread)."""
        self._sync_asked = False
        if error is not None:
            # The kernel may have dropped the data: a second sync could succeed without it.
            self._node.fail_log_dir(self.log.dir, error)
            return
        log = self.log
        if log.synced_offset > log.high_watermark:
            log.high_watermark = log.synced_offset
        self._node.metrics.sync_ns.record(perf_counter_ns() - self._sync_asked_ns)
        self.wake()
        if log.synced_offset < log.end_offset:
            self._written()

    def close(self) -> None:
        """Stop the timer; the log is closed by its manager."""
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

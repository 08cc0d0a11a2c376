"""Writing the markers of decided transactions, and waiting until every one is durable.

A decision is final, so its markers are written however long it takes. If a disk is full, the write
is tried again; on an offline disk, it waits for the next start; on a deleted topic, it is skipped.
After a crash markers are written again: one that exists already is skipped, or does no harm
because nothing follows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.partition import Partition
from headrace.broker.purgatory import Waiting
from headrace.coordinator.transactions.effects import Ending, Producer
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.storage import Origin

if TYPE_CHECKING:
    from headrace.broker.node import Node

# Leadership of `__transaction_state` never moves on a single node, so this never rises.
COORDINATOR_EPOCH = 0
RETRY_MS = 1_000
# How long a sync may take before it is logged; the wait continues.
PATIENCE_MS = 30_000

log = logging.getLogger(__name__)


class OutstandingMarkers:
    """Counts what an ending still waits for: retries, and groups of markers that are synced.

    One count for all of them: while a disk is full, callbacks that wrap each other would nest too
    deep to call.
    """

    __slots__ = ("_count", "_done")

    def __init__(self, done: Callable[[], None]) -> None:
        self._count = 1
        self._done = done

    def add(self) -> None:
        """Wait for one more."""
        self._count += 1

    def finish_one(self) -> None:
        """One is done; calls `done` after the last."""
        self._count -= 1
        if not self._count:
            self._done()


class Markers:
    """Writes markers to the partitions of this node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def settle(self, ending: Ending, done: Callable[[], None]) -> None:
        """Write a marker to each partition of a transaction; `done` when all are durable."""
        self._settle(ending, ending.partitions, OutstandingMarkers(done), RETRY_MS)

    def _settle(
        self,
        ending: Ending,
        partitions: Iterable[TopicPartition],
        outstanding: OutstandingMarkers,
        retry_ms: int,
    ) -> None:
        node = self._node
        written: list[tuple[Partition, int]] = []
        left: list[TopicPartition] = []
        for topic, index in sorted(partitions):
            partition = node.partitions.get(topic, index)
            if partition is None and topic not in node.catalog.topics:
                continue  # deleted: nobody will read the records
            if partition is not None and self._is_settled(partition, ending):
                continue
            try:
                if partition is None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its disk is offline")
                end = self.append_own(partition, ending.producer, ending.committed)
            except KafkaError as error:
                if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    # An administrator has ended the transaction there, with a newer epoch.
                    log.warning("no marker of %r in %s-%d: %s", ending, topic, index, error)
                    continue
                if retry_ms == RETRY_MS:
                    log.error(
                        "transaction %r cannot be ended in %s-%d yet: %s",
                        ending.transactional_id,
                        topic,
                        index,
                        error,
                    )
                left.append((topic, index))
            else:
                written.append((partition, end))
        if left:
            # Retry beside the syncs, not after them: one may be on a disk that has just failed and
            # never end, and readers of the other partitions must not wait for it.
            outstanding.add()
            again_ms = min(2 * retry_ms, PATIENCE_MS)
            node.real_timers.call_later(
                retry_ms, partial(self._settle, ending, left, outstanding, again_ms)
            )
        when_durable(node, written, outstanding.finish_one)

    def _is_settled(self, partition: Partition, ending: Ending) -> bool:
        """Whether the marker is written already; then an open transaction is a later one."""
        known = partition.log.producers.get(ending.producer.id)
        return ending.has_own_epoch and known is not None and known.epoch >= ending.producer.epoch

    def append_own(self, partition: Partition, producer: Producer, committed: bool) -> int:
        """`append` as this node's coordinator."""
        known = partition.log.producers.get(producer.id)
        # There is no other coordinator to fence; but an administrator may have used any epoch.
        epoch = max(COORDINATOR_EPOCH, known.coordinator_epoch if known is not None else 0)
        return self.append(partition, producer, committed, epoch)

    def append(
        self, partition: Partition, producer: Producer, committed: bool, coordinator_epoch: int
    ) -> int:
        """Append one marker and return the offset after it; raises KafkaError if it is refused."""
        error = partition.error
        if error:
            raise KafkaError(error)
        node = self._node
        now_ms = node.clock.now_ms()
        kind = ControlType.COMMIT if committed else ControlType.ABORT
        marker = build_marker(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            timestamp=now_ms,
        )
        if partition.topic == CONSUMER_OFFSETS:
            shard = node.groups.shard_at(partition.index)
            if shard is not None:
                return shard.end_transaction(marker, producer.id, committed)
        return partition.append(memoryview(marker), now_ms, Origin.COORDINATOR).last_offset + 1


class MarkersWaiting(Waiting):
    """Markers that are written and not yet all durable."""

    __slots__ = ("_done", "_node", "_written")

    def __init__(
        self, node: Node, written: list[tuple[Partition, int]], done: Callable[[], None]
    ) -> None:
        super().__init__()
        self._node = node
        self._written = written
        self._done = done

    def try_complete(self) -> bool:
        for partition, end_offset in self._written:
            if partition.log.high_watermark < end_offset and not partition.deleted:
                return False
        # `done` may write to the same partitions, and so complete this again.
        done, self._done = self._done, _nothing
        done()
        return True

    def expire(self) -> None:
        late = [
            f"{partition.topic}-{partition.index}"
            for partition, end_offset in self._written
            if partition.log.high_watermark < end_offset
        ]
        log.warning("transaction markers in %s are still not durable", ", ".join(late))
        when_durable(self._node, self._written, self._done)

    def fail(self) -> None:
        """Do nothing: only `done` can raise, so it has been called."""


def _nothing() -> None:
    """Does nothing: `done` has been called."""


def when_durable(
    node: Node, written: list[tuple[Partition, int]], done: Callable[[], None]
) -> None:
    """Call `done` when every partition is durable up to its offset; syncs start at once."""
    waiting = MarkersWaiting(node, written, done)
    if waiting.try_complete():
        return
    partitions = [partition for partition, _ in written]
    node.produce_purgatory.park(waiting, partitions, PATIENCE_MS)
    for partition in partitions:
        partition.sync()

"""The transactions that this node coordinates, in the shards of `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.broker.purgatory import Pending
from headrace.broker.sharding import ShardedCoordinator
from headrace.broker.transactions_markers import Markers
from headrace.broker.transactions_shard import Step, TransactionShard
from headrace.coordinator.transactions.coordinator import EPOCH_MAX, TransactionCoordinator
from headrace.coordinator.transactions.effects import NO_PRODUCER, Note, Producer
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition
    from headrace.config import Settings

log = logging.getLogger(__name__)


class TransactionService(ShardedCoordinator[TransactionShard]):
    """All transactional ids that this node coordinates."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        super().__init__(
            node,
            TRANSACTION_STATE,
            settings.int("transaction.state.log.num.partitions"),
            settings.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
        self.markers = Markers(node)
        self.load_bytes = settings.int("transaction.state.log.load.buffer.size")
        self.abort_retry_ms = settings.int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        )
        self._settings = transaction_settings(settings)

    def topic_config(self) -> Mapping[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(self.node.settings.int("transaction.state.log.segment.bytes")),
        }

    def new_shard(self, partition: Partition) -> TransactionShard:
        return TransactionShard(self, partition, TransactionCoordinator(self._settings))

    def loaded(self) -> None:
        """Abort transactions that are open in a partition and unknown to the coordinator.

        A power loss between a partition's records and the coordinator's leaves them (see
        `TransactionCoordinator`), as does any bug that makes a transaction hang. The coordinator
        is on the same node, so nobody else could ever end them.
        """
        if not self.is_complete:
            log.warning("some transactions are unknown: partitions that they left open stay open")
            return
        known = {open_in for shard in self.shards() for open_in in shard.coordinator.open_in()}
        for partition in self.node.partitions:
            for producer in partition.log.producers.in_transaction():
                place = (partition.topic, partition.index)
                writer = Producer(producer.producer_id, producer.epoch)
                if (place, writer) not in known:
                    self._abort_orphan(partition, writer)

    def _abort_orphan(self, partition: Partition, producer: Producer) -> None:
        """Abort an open transaction that its coordinator does not know.

        Its client may still send a batch again. Under the same epoch the log would take that for a
        duplicate of the aborted batch, acknowledge it, and nobody would ever read it: so the
        marker has the next epoch, which tells the client to abort. Committed offsets have no
        sequence; sent again, they are written again, and count.
        """
        if partition.topic != CONSUMER_OFFSETS:
            producer = producer._replace(epoch=min(producer.epoch + 1, EPOCH_MAX))
        log.warning(
            "aborting the transaction of producer %d in %s-%d: no coordinator knows it",
            producer.id,
            partition.topic,
            partition.index,
        )
        try:
            self.markers.append_own(partition, producer, False)
        except KafkaError as error:
            log.error("the abort failed: %s", error)

    def serve(
        self,
        transactional_id: str,
        step: Step,
        respond: Callable[[ErrorCode, Producer], Message],
        *,
        early: bool = False,
    ) -> Message | Pending:
        """Run one step of an id's coordinator; the response comes when its effects are durable."""
        try:
            shard = self.shard_of(transactional_id)
        except KafkaError as error:
            return respond(error.code, NO_PRODUCER)
        pending = Pending()
        shard.attempt(
            transactional_id,
            step,
            lambda error, producer: pending.resolve(respond(error, producer)),
            early=early,
        )
        return pending.response or pending

    def note(self, notes: list[tuple[str, Note]]) -> None:
        """Count and log the outcomes of transactions."""
        metrics = self.node.metrics
        counters = {
            Note.COMMITTED: metrics.transactions_committed,
            Note.ABORTED: metrics.transactions_aborted,
            Note.TIMED_OUT: metrics.transactions_timed_out,
            Note.FENCED: metrics.transactions_fenced,
            Note.EXPIRED: metrics.transactional_ids_expired,
        }
        for transactional_id, note in notes:
            counters[note].value += 1
            if note in (Note.TIMED_OUT, Note.FENCED, Note.EXPIRED):
                log.info("transactional id %r: %s", transactional_id, note.value)


def transaction_settings(settings: Settings) -> TransactionSettings:
    """The coordinator's settings, from the broker's."""
    return TransactionSettings(
        timeout_ms_max=settings.int("transaction.max.timeout.ms"),
        id_expiration_ms=settings.int("transactional.id.expiration.ms"),
    )

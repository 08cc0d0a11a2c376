"""The ledger's Kafka clients: a group member that reads a topic, a producer of transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.client.message import ConsumedRecord
from headrace.client.retry_loop import retry
from headrace.client.settings import ClientKind, settings_of, translate
from headrace.ledger.machine import Headers
from headrace.ledger.topics import DEAD_LETTER_BYTES_MAX

# How soon the partitions of a dead instance move on, and how long a live one may go without a poll.
SESSION_MS = 10_000
POLL_INTERVAL_MS = 60_000
METADATA_REFRESH_MS = 10_000
# The next owner ends a transaction that a dead instance left open, or the broker does after this.
TRANSACTION_MS = 20_000
# How long one undeliverable record may hold up its transaction: well below the time after which
# the broker aborts the transaction, which the producer could not continue from.
MESSAGE_MS = 5_000
OPERATION_SECONDS = 20.0
ATTEMPTS_MAX = 3
METADATA_SECONDS = 20.0
BUFFER_FULL_SECONDS = 0.05

_log = logging.getLogger("headrace.ledger")

# Called with the partitions that were assigned or revoked.
OnChange = Callable[[Sequence[int]], None]
# Consumer records by partition.
Records = dict[int, list[ConsumedRecord]]

# Reported for records that failed only because their transaction did.
_FAILED_WITH_TRANSACTION = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE, KafkaError._DESTROY}
)


def consumer(settings: Mapping[str, Any], group: str) -> Consumer:
    """A consumer that reads committed records from the beginning and reports partition ends."""
    defaults = {
        "session.timeout.ms": SESSION_MS,
        "max.poll.interval.ms": POLL_INTERVAL_MS,
        # While brokers restart, a group's leader may see a topic without partitions and assign
        # nothing. It must notice the partitions soon, not after the default of five minutes.
        "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
        # Limits the memory for prefetched records.
        "queued.max.messages.kbytes": 16_384,
        "queued.min.messages": 20_000,
        "fetch.queue.backoff.ms": 10,
    }
    required = {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "partition.assignment.strategy": "cooperative-sticky",
        "allow.auto.create.topics": False,
    }
    return Consumer({**defaults, **_of_kind(settings, "consumer"), **required})


def producer(settings: Mapping[str, Any], transactional_id: str) -> Producer:
    """A transactional producer; its predecessor with the same id is fenced when this returns."""
    defaults = {"transaction.timeout.ms": TRANSACTION_MS, "message.timeout.ms": MESSAGE_MS}
    required = {
        "transactional.id": transactional_id,
        "acks": "all",
        "enable.idempotence": True,
        # A transaction has many records, and its commit does not wait for the linger time.
        "linger.ms": 5,
        "message.max.bytes": DEAD_LETTER_BYTES_MAX,
        "partitioner": "murmur2_random",
    }
    made = Producer({**defaults, **_of_kind(settings, "producer"), **required})
    _retry(made.init_transactions)
    return made


class GroupReader:
    """A member of the group that reads one topic; for one thread, which also runs the callbacks."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        on_assign: OnChange,
        on_revoke: OnChange,
        start: int | None = None,
    ) -> None:
        self.topic = topic
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        # Where to start reading; None for the committed offset.
        self._start = start
        # A new object each time a partition is assigned.
        self._assignments: dict[int, object] = {}
        self._consumer = consumer(settings, topic)

    def join(self) -> None:
        """Join the group; partitions are assigned and revoked during `read`."""
        self._consumer.subscribe(
            [self.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def read(self, wait_s: float, records_max: int) -> tuple[Records, dict[int, int]]:
        """Wait for records; returns them and the ends of partitions that were reached.

        KafkaException if the consumer cannot go on.
        """
        records: Records = {}
        ends: dict[int, int] = {}
        first = self._consumer.poll(wait_s)
        if first is None:
            return records, ends
        assignment = self._assignments.get(first.partition())
        others = self._consumer.consume(records_max, 0)
        if self._assignments.get(first.partition()) is assignment:
            self._sort(first, records, ends)
        # Otherwise its partition was revoked in between, and the record is read again.
        for record in others:
            self._sort(record, records, ends)
        return records, ends

    @property
    def group_metadata(self) -> Any:
        """Identifies this member when a transaction commits offsets."""
        return self._consumer.consumer_group_metadata()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        found = self._consumer.list_topics(topic, timeout=METADATA_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _sort(self, record: Any, records: Records, ends: dict[int, int]) -> None:
        error = record.error()
        if error is None:
            records.setdefault(record.partition(), []).append(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[record.partition()] = record.offset()
        elif error.fatal():
            raise KafkaException(error)
        else:
            _log.warning("reading %s: %s", self.topic, error.str())

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        # Before the first fetch, so that the previous owner is fenced before anything is read.
        self._on_assign(numbers)
        self._assignments.update((number, object()) for number in numbers)
        if self._start is not None:
            for partition in partitions:
                partition.offset = self._start
        consumer.incremental_assign(partitions)

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = [partition.partition for partition in partitions]
        for number in numbers:
            self._assignments.pop(number, None)
        self._on_revoke(numbers)
        consumer.incremental_unassign(partitions)


class FailedRecord(NamedTuple):
    """A record that was not written."""

    topic: str
    # The number that the sender gave it.
    tag: int
    error: KafkaError


class AbortedTransaction(NamedTuple):
    """Why a transaction was aborted; `records` is empty if it is unknown which one is at fault."""

    cause: KafkaError
    records: tuple[FailedRecord, ...] = ()


class TransactionalProducer:
    """Writes one transaction after another and knows which record made one fail; for one thread.

    The predecessor with the same transactional id is fenced when this is made.
    """

    def __init__(self, settings: Mapping[str, Any], transactional_id: str) -> None:
        self._producer = producer(settings, transactional_id)
        self._failed: list[FailedRecord] = []
        # The error of the transaction as a whole.
        self._cause: KafkaError | None = None

    def begin(self) -> None:
        """Begin a transaction."""
        self._failed.clear()
        self._cause = None
        self._producer.begin_transaction()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        tag: int = -1,
    ) -> None:
        """Send a record; its outcome is part of what `commit` returns."""
        while not self._failed:
            try:
                on_delivery = partial(self._on_delivery, tag)
                given: Any = list(headers) or None
                self._producer.produce(topic, value, key, partition, on_delivery, headers=given)
                return
            except BufferError:
                self._producer.poll(BUFFER_FULL_SECONDS)
            except KafkaException as problem:
                self._failed.append(FailedRecord(topic, tag, problem.args[0]))

    def send_offset(self, offset: TopicPartition, group_metadata: Any) -> None:
        """Commit an offset of a group with the transaction."""
        self._step(partial(self._producer.send_offsets_to_transaction, [offset], group_metadata))

    def commit(self) -> AbortedTransaction | None:
        """Commit the transaction; if that is refused, abort it and return why.

        KafkaException if the outcome is unknown, or if the producer is fenced.
        """
        self._step(self._producer.commit_transaction)
        if self._cause is None and not self._failed:
            return None
        _retry(self._producer.abort_transaction)
        records = tuple(
            failed for failed in self._failed if failed.error.code() not in _FAILED_WITH_TRANSACTION
        )
        cause = records[0].error if records else self._cause
        return AbortedTransaction(cause or self._failed[0].error, records)

    def close(self) -> None:
        """Drop the producer; its successor aborts the transaction that is still open."""
        # Records in flight refer to this object, which would keep the client alive.
        self._producer.purge()
        self._producer.poll(0)
        del self._producer

    def _step(self, step: Callable[[float], object]) -> None:
        """Take a step of the transaction, unless it has failed already."""
        if self._cause is not None or self._failed:
            return
        try:
            _retry(step)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            self._cause = error

    def _on_delivery(self, tag: int, error: KafkaError | None, record: Any) -> None:
        if error is not None:
            self._failed.append(FailedRecord(record.topic(), tag, error))


def _retry(operation: Callable[[float], object]) -> None:
    """Call an operation of a transaction until it succeeds or its error is not retriable."""
    retry(partial(operation, OPERATION_SECONDS), _pause_s, attempts_max=ATTEMPTS_MAX)


def _pause_s(problem: Exception) -> float | None:
    is_retriable = isinstance(problem, KafkaException) and problem.args[0].retriable()
    return 0.0 if is_retriable else None


def _of_kind(settings: Mapping[str, Any], kind: ClientKind) -> dict[str, Any]:
    return translate({"log_level": 0, **settings_of(settings, kind)}, kind)

"""The intake: moves commands from the input topic to the state topic, exactly once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.client.clock import Clock
from headrace.client.dead_letters import ERROR_HEADER, LEFT_OUT_HEADER, SOURCE_HEADER
from headrace.client.message import ConsumedRecord, Message
from headrace.client.produce_errors import is_passing
from headrace.ledger.clients import (
    AbortedTransaction,
    GroupReader,
    Records,
    TransactionalProducer,
)
from headrace.ledger.machine import InvalidCommand, LedgerEntry, LedgerMachine
from headrace.ledger.records import partition_of, state_key, state_value
from headrace.ledger.stats import LedgerStats
from headrace.ledger.topics import ServiceTopics

BATCH_RECORDS = 2_000
POLL_SECONDS = 0.1
TRIM_SECONDS = 60.0
LAST_TRIM_SECONDS = 5.0
# A transaction costs the brokers more than the records in it, so records gather between two.
GATHER_SECONDS = 0.025

_log = logging.getLogger("headrace.ledger")

# A record of the input topic, and what the machine makes of it.
Command = tuple[Message, LedgerEntry | InvalidCommand]


class Intake:
    """A member of the group that reads the input topic; one transactional id per partition.

    State records and the offset of the last command are committed in one transaction.
    """

    def __init__(
        self, machine: LedgerMachine, settings: Mapping[str, Any], clock: Clock, stats: LedgerStats
    ) -> None:
        self.ready = threading.Event()
        self._machine = machine
        self._topics = ServiceTopics(machine.name)
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._producers: dict[int, TransactionalProducer] = {}
        # The next offset of each partition with commands that were moved but not deleted yet.
        self._moved: dict[int, int] = {}
        self._state_partitions = 0

    def run(self, stopping: threading.Event, admin: AdminClient) -> None:
        """Move commands until it is stopped; the next run aborts what a failure leaves open."""
        topics = self._topics
        trim_at = begin_at = 0.0
        reader = self._reader = GroupReader(
            self._settings, topics.input, self._assigned, self._revoked
        )
        try:
            self._state_partitions = reader.partitions(topics.state)
            reader.join()
            while not stopping.is_set():
                # Commands that arrive during this wait share a transaction.
                stopping.wait(max(0.0, begin_at - time.monotonic()))
                records, ends = reader.read(POLL_SECONDS, BATCH_RECORDS)
                if records:
                    begin_at = time.monotonic() + GATHER_SECONDS
                    self._move(records)
                for partition in ends.keys() & self._producers.keys():
                    self._stats.positions[topics.input, partition] = ends[partition]
                    # Includes commands that an earlier owner moved but did not delete.
                    self._moved[partition] = ends[partition]
                if self._moved and time.monotonic() >= trim_at:
                    self._trim(admin)
                    trim_at = time.monotonic() + TRIM_SECONDS
            wait(self._trim(admin), LAST_TRIM_SECONDS)
        finally:
            self.ready.clear()
            self._revoked(list(self._producers))
            reader.close()

    def _assigned(self, partitions: Sequence[int]) -> None:
        # Earlier owners are fenced and their open transactions aborted before the committed
        # offsets are read, so those are final.
        for partition in partitions:
            old = self._producers.pop(partition, None)
            if old is not None:
                old.close()
            id = self._topics.intake_id(partition)
            self._producers[partition] = TransactionalProducer(self._settings, id)
        self.ready.set()

    def _revoked(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            producer = self._producers.pop(partition, None)
            if producer is not None:
                producer.close()
            self._moved.pop(partition, None)
            self._stats.positions.pop((self._topics.input, partition), None)

    def _move(self, records: Records) -> None:
        now_ms = self._clock.now_ms()
        # A partition may have been revoked while the last of these were read.
        batches = {
            number: [self._read(record, now_ms) for record in records[number]]
            for number in records.keys() & self._producers.keys()
        }
        # All are sent before the first commit, so that they travel at the same time.
        for partition, batch in batches.items():
            self._begin(self._producers[partition], batch)
        for partition, batch in batches.items():
            aborted = self._producers[partition].commit()
            if aborted is not None:
                _raise_passing(aborted)
                # The sequence numbers of refused records are missing at the broker, so a new
                # producer starts from zero.
                self._assigned([partition])
                # One command is refused for good: it must not take the others with it.
                for command in batch:
                    self._move_alone(partition, command)
            next_offset = batch[-1][0].offset + 1
            self._moved[partition] = next_offset
            self._stats.positions[self._topics.input, partition] = next_offset
            self._stats.taken += len(batch)

    def _begin(self, producer: TransactionalProducer, batch: Sequence[Command]) -> None:
        producer.begin()
        for message, found in batch:
            if isinstance(found, InvalidCommand):
                self._refuse(producer, message, found.reason)
            else:
                producer.send(
                    self._topics.state,
                    state_value(found),
                    state_key(found.id, found.position),
                    partition=partition_of(found.id, self._state_partitions),
                )
        last = batch[-1][0]
        offset = TopicPartition(last.topic, last.partition, last.offset + 1)
        producer.send_offset(offset, self._reader.group_metadata)

    def _move_alone(self, partition: int, command: Command) -> None:
        """Move a command by itself; if refused, as a dead letter; if that is too, without value."""
        message, found = command
        aborted: AbortedTransaction | None = None
        for is_whole in (True, True, False):
            if aborted is not None:
                _raise_passing(aborted)
                found = InvalidCommand(aborted.cause.str())
                self._assigned([partition])
            producer = self._producers[partition]
            if not is_whole:
                message.value = None
                message.headers = (*message.headers, (LEFT_OUT_HEADER, b"value"))
            self._begin(producer, [(message, found)])
            aborted = producer.commit()
            if aborted is None:
                return
        assert aborted is not None
        raise KafkaException(aborted.cause)

    def _trim(self, admin: AdminClient) -> list[Future[Any]]:
        """Delete commands that were moved.

        Brokers forget the committed offsets of a group that was away for long. It would start
        from the beginning, and must not find commands there that it has moved before.
        """
        moved = [TopicPartition(self._topics.input, *offset) for offset in self._moved.items()]
        self._moved.clear()
        deletions = list(admin.delete_records(moved).values()) if moved else []
        for deletion in deletions:
            deletion.add_done_callback(_log_failure)
        return deletions

    def _read(self, record: ConsumedRecord, now_ms: int) -> Command:
        try:
            message = Message.from_record(record)
        except SystemError:
            # The client raises this for a header whose name is not UTF-8, and crashes if its
            # headers are asked for a second time.
            message = Message(
                record.topic(), record.partition(), record.offset(), record.key(), record.value()
            )
            return message, InvalidCommand("the name of a header is not UTF-8 text")
        if record.timestamp()[0] != TIMESTAMP_LOG_APPEND_TIME:
            # A client's clock may be wrong, so delays do not count from it.
            message.timestamp_ms = now_ms
        try:
            return message, self._machine.read(message, now_ms)
        except Exception as error:
            # One malformed record must not hold up all records behind it.
            _log.exception("cannot read %s", message.source)
            return message, InvalidCommand(f"{type(error).__name__}: {error}")

    def _refuse(self, producer: TransactionalProducer, message: Message, reason: str) -> None:
        self._stats.refused += 1
        headers = [
            *message.headers,
            (ERROR_HEADER, reason.encode()),
            (SOURCE_HEADER, message.source.encode()),
        ]
        producer.send(self._topics.dead_letters, message.value, message.key, headers=headers)


def _raise_passing(aborted: AbortedTransaction) -> None:
    """Raise if a retry of the whole batch may succeed."""
    errors = [failed.error for failed in aborted.records] or [aborted.cause]
    if all(is_passing(error) for error in errors):
        raise KafkaException(aborted.cause)


def _log_failure(deletion: Future[Any]) -> None:
    problem = deletion.exception()
    if problem is not None:
        _log.warning("cannot delete commands that were moved: %s", problem)

"""The intake: moves commands, with its offsets, in one transaction into the state topic."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from headrace.reliability.clock import Clock
from headrace.reliability.dead_letters import ERROR_HEADER, LEFT_OUT_HEADER, SOURCE_HEADER
from headrace.reliability.ledger import clients
from headrace.reliability.ledger.machine import Entry, Machine, Refusal
from headrace.reliability.ledger.reading import Reader, Records
from headrace.reliability.ledger.records import partition_of, state_key, state_value
from headrace.reliability.ledger.stats import Stats
from headrace.reliability.ledger.topics import Names
from headrace.reliability.message import Message

BATCH_RECORDS = 2_000
POLL_SECONDS = 0.1
TRIM_SECONDS = 60.0
# A transaction costs the brokers more than the records in it: between two of them it waits.
GATHER_SECONDS = 0.025

_log = logging.getLogger("headrace.ledger")


class Intake:
    """A member of the group that reads the input topic; one transactional id per partition."""

    def __init__(
        self, machine: Machine, settings: Mapping[str, Any], clock: Clock, stats: Stats
    ) -> None:
        self.ready = threading.Event()
        self._machine = machine
        self._names = Names(machine.name)
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._producers: dict[int, Producer] = {}
        # The next offset of each partition from which something was taken in of late.
        self._taken: dict[int, int] = {}
        self._state_partitions = 0

    def live(self, stopping: threading.Event, admin: AdminClient) -> None:
        """Take in until it is stopped; what a failure leaves open is aborted by the next life."""
        names = self._names
        trim_at = begin_at = 0.0
        reader = self._reader = Reader(self._settings, names.input, self._own, self._give_up)
        try:
            self._state_partitions = reader.partitions(names.state)
            reader.join()
            while not stopping.is_set():
                # What comes meanwhile is taken together.
                stopping.wait(max(0.0, begin_at - time.monotonic()))
                records, ends = reader.read(POLL_SECONDS, BATCH_RECORDS)
                if records:
                    begin_at = time.monotonic() + GATHER_SECONDS
                    self._move(records)
                for partition, end in ends.items():
                    self._stats.positions[names.input, partition] = end
                if self._taken and time.monotonic() >= trim_at:
                    self._trim(admin)
                    trim_at = time.monotonic() + TRIM_SECONDS
        finally:
            self.ready.clear()
            self._producers.clear()
            self._taken.clear()
            reader.close()

    def _own(self, partitions: Sequence[int]) -> None:
        # Whoever had them is fenced, and what it left open is aborted, before the positions are
        # asked for: so they are final.
        for partition in partitions:
            id = self._names.intake_id(partition)
            self._producers[partition] = clients.producer(self._settings, id)
        self.ready.set()

    def _give_up(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._producers.pop(partition, None)
            self._taken.pop(partition, None)
            self._stats.positions.pop((self._names.input, partition), None)

    def _move(self, records: Records) -> None:
        now_ms = self._clock.now_ms()
        # A partition may have gone while the last of these were read.
        records = {number: records[number] for number in records.keys() & self._producers.keys()}
        # All are sent before the first is committed, so that they go at the same time.
        for partition, group in records.items():
            self._send(self._producers[partition], partition, group, now_ms)
        for partition, group in records.items():
            clients.patiently(self._producers[partition].commit_transaction)
            self._taken[partition] = group[-1].offset() + 1
            self._stats.positions[self._names.input, partition] = group[-1].offset() + 1
            self._stats.taken += len(group)

    def _trim(self, admin: AdminClient) -> None:
        """Delete what is taken in.

        Brokers forget the positions of a group that was away for long; it would begin anew, and
        must not find what it has taken in before.
        """
        places = [TopicPartition(self._names.input, *place) for place in self._taken.items()]
        self._taken.clear()
        for future in admin.delete_records(places).values():
            future.add_done_callback(_note_refusal)

    def _send(self, producer: Producer, partition: int, group: list[Any], now_ms: int) -> None:
        producer.begin_transaction()
        for record in group:
            message = Message.from_record(record)
            if record.timestamp()[0] != TIMESTAMP_LOG_APPEND_TIME:
                # A client's clock is nothing to count from.
                message.timestamp_ms = now_ms
            found = self._read(message, now_ms)
            try:
                if isinstance(found, Refusal):
                    self._refuse(producer, message, found.reason)
                else:
                    self._keep(producer, found)
            except KafkaException as problem:
                if problem.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                message.value = None
                self._refuse(producer, message, "it is too large", [(LEFT_OUT_HEADER, b"value")])
        position = TopicPartition(self._names.input, partition, group[-1].offset() + 1)
        generation = self._reader.generation
        producer.send_offsets_to_transaction([position], generation, clients.OPERATION_SECONDS)

    def _read(self, message: Message, now_ms: int) -> Entry | Refusal:
        try:
            return self._machine.read(message, now_ms)
        except Exception as error:
            # One odd record must not hold all that come after it.
            _log.exception("%s cannot be read", message.source)
            return Refusal(f"{type(error).__name__}: {error}")

    def _keep(self, producer: Producer, entry: Entry) -> None:
        producer.produce(
            self._names.state,
            state_value(entry),
            state_key(entry.id, entry.place),
            partition_of(entry.id, self._state_partitions),
        )

    def _refuse(
        self,
        producer: Producer,
        message: Message,
        reason: str,
        more: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        self._stats.refused += 1
        headers = [
            *message.headers,
            (ERROR_HEADER, reason.encode()),
            (SOURCE_HEADER, message.source.encode()),
            *more,
        ]
        producer.produce(self._names.dead, message.value, message.key, headers=headers)


def _note_refusal(deletion: Future[Any]) -> None:
    problem = deletion.exception()
    if problem is not None:
        _log.warning("commands that were taken in are not deleted: %s", problem)

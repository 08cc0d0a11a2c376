"""The intake: moves commands, with its offsets, in one transaction into the state topic."""

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
from headrace.client.message import Message
from headrace.client.produce_errors import is_passing
from headrace.ledger.machine import Entry, Machine, Refusal
from headrace.ledger.reading import Reader, Records
from headrace.ledger.records import partition_of, state_key, state_value
from headrace.ledger.stats import Stats
from headrace.ledger.topics import Names
from headrace.ledger.writer import Failed, Writer

BATCH_RECORDS = 2_000
POLL_SECONDS = 0.1
TRIM_SECONDS = 60.0
LAST_TRIM_SECONDS = 5.0
# A transaction costs the brokers more than the records in it: between two of them it waits.
GATHER_SECONDS = 0.025

_log = logging.getLogger("headrace.ledger")

# A record of the input, and what it is.
Taken = tuple[Message, Entry | Refusal]


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
        self._producers: dict[int, Writer] = {}
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
                for partition in ends.keys() & self._producers.keys():
                    self._stats.positions[names.input, partition] = ends[partition]
                    # Also what an earlier owner took in, and had no time to delete.
                    self._taken[partition] = ends[partition]
                if self._taken and time.monotonic() >= trim_at:
                    self._trim(admin)
                    trim_at = time.monotonic() + TRIM_SECONDS
            wait(self._trim(admin), LAST_TRIM_SECONDS)
        finally:
            self.ready.clear()
            self._give_up(list(self._producers))
            reader.close()

    def _own(self, partitions: Sequence[int]) -> None:
        # Whoever had them is fenced, and what it left open is aborted, before the positions are
        # asked for: so they are final.
        for partition in partitions:
            old = self._producers.pop(partition, None)
            if old is not None:
                old.close()
            id = self._names.intake_id(partition)
            self._producers[partition] = Writer(self._settings, id)
        self.ready.set()

    def _give_up(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            producer = self._producers.pop(partition, None)
            if producer is not None:
                producer.close()
            self._taken.pop(partition, None)
            self._stats.positions.pop((self._names.input, partition), None)

    def _move(self, records: Records) -> None:
        now_ms = self._clock.now_ms()
        # A partition may have gone while the last of these were read.
        groups = {
            number: [self._read(record, now_ms) for record in records[number]]
            for number in records.keys() & self._producers.keys()
        }
        # All are sent before the first is committed, so that they go at the same time.
        for partition, group in groups.items():
            self._begin(self._producers[partition], group)
        for partition, group in groups.items():
            failed = self._producers[partition].commit()
            if failed is not None:
                _raise_passing(failed)
                # The numbers of what was refused are missing to the broker; a new one counts anew.
                self._own([partition])
                # One of them is refused for good: it must not take the others with it.
                for one in group:
                    self._move_alone(partition, one)
            next_offset = group[-1][0].offset + 1
            self._taken[partition] = next_offset
            self._stats.positions[self._names.input, partition] = next_offset
            self._stats.taken += len(group)

    def _begin(self, producer: Writer, group: Sequence[Taken]) -> None:
        producer.begin()
        for message, found in group:
            if isinstance(found, Refusal):
                self._refuse(producer, message, found.reason)
            else:
                producer.send(
                    self._names.state,
                    state_value(found),
                    state_key(found.id, found.place),
                    partition=partition_of(found.id, self._state_partitions),
                )
        last = group[-1][0]
        position = TopicPartition(last.topic, last.partition, last.offset + 1)
        producer.send_position(position, self._reader.generation)

    def _move_alone(self, partition: int, one: Taken) -> None:
        """Move a command by itself; as a dead letter if that is refused, at last without value."""
        message, found = one
        failed: Failed | None = None
        for is_whole in (True, True, False):
            if failed is not None:
                _raise_passing(failed)
                found = Refusal(failed.cause.str())
                self._own([partition])
            producer = self._producers[partition]
            if not is_whole:
                message.value = None
                message.headers = (*message.headers, (LEFT_OUT_HEADER, b"value"))
            self._begin(producer, [(message, found)])
            failed = producer.commit()
            if failed is None:
                return
        assert failed is not None
        raise KafkaException(failed.cause)

    def _trim(self, admin: AdminClient) -> list[Future[Any]]:
        """Delete what is taken in.

        Brokers forget the positions of a group that was away for long; it would begin anew, and
        must not find what it has taken in before.
        """
        places = [TopicPartition(self._names.input, *place) for place in self._taken.items()]
        self._taken.clear()
        deletions = list(admin.delete_records(places).values()) if places else []
        for deletion in deletions:
            deletion.add_done_callback(_note_refusal)
        return deletions

    def _read(self, record: Any, now_ms: int) -> Taken:
        try:
            message = Message.from_record(record)
        except SystemError:
            # So the client says that a header's name is no text; asked again it would fall apart.
            place = record.topic(), record.partition(), record.offset()
            message = Message(*place, record.key(), record.value())
            return message, Refusal("the name of a header is no text in UTF-8")
        if record.timestamp()[0] != TIMESTAMP_LOG_APPEND_TIME:
            # A client's clock is nothing to count from.
            message.timestamp_ms = now_ms
        try:
            return message, self._machine.read(message, now_ms)
        except Exception as error:
            # One odd record must not hold all that come after it.
            _log.exception("%s cannot be read", message.source)
            return message, Refusal(f"{type(error).__name__}: {error}")

    def _refuse(self, producer: Writer, message: Message, reason: str) -> None:
        self._stats.refused += 1
        headers = [
            *message.headers,
            (ERROR_HEADER, reason.encode()),
            (SOURCE_HEADER, message.source.encode()),
        ]
        producer.send(self._names.dead, message.value, message.key, headers=headers)


def _raise_passing(failed: Failed) -> None:
    """Raise what may pass, so that all of it is tried again."""
    errors = [bad.error for bad in failed.records] or [failed.cause]
    if all(is_passing(error) for error in errors):
        raise KafkaException(failed.cause)


def _note_refusal(deletion: Future[Any]) -> None:
    problem = deletion.exception()
    if problem is not None:
        _log.warning("commands that were taken in are not deleted: %s", problem)

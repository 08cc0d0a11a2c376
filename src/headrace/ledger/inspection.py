"""Reads the entries of a ledger service from outside, without owning or changing anything."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from headrace.ledger.clients import METADATA_SECONDS, consumer
from headrace.ledger.entries import EntryCache
from headrace.ledger.machine import LedgerEntry, LedgerMachine
from headrace.ledger.records import partition_of
from headrace.ledger.state_partition import StatePartition
from headrace.ledger.topics import ServiceTopics

# The end of a partition is known when a fetch has waited this long.
AT_END = {"fetch.wait.max.ms": 10}
BATCH_RECORDS = 5_000
POLL_SECONDS = 0.1
# Give up when no record has come for this long.
SILENCE_SECONDS = 30.0
# No record has this writer, so every record is applied.
NO_WRITER = -1


def read_entries(
    settings: Mapping[str, Any], machine: LedgerMachine, id: str | None = None
) -> Iterator[LedgerEntry]:
    """All entries with their bodies, or that of one id; the next due one first.

    TimeoutError if the brokers do not answer.
    """
    cache = EntryCache.in_file()
    try:
        state = StatePartition(machine, cache, NO_WRITER, 0)
        _read(settings, ServiceTopics(machine.name).state, state, id)
        yield from (entry for entry in cache.all() if id is None or entry.id == id)
    finally:
        cache.close()


def _read(settings: Mapping[str, Any], topic: str, state: StatePartition, id: str | None) -> None:
    # A consumer needs a group's name, but never joins this group.
    reader = consumer({**AT_END, **settings}, f"{topic}-look")
    try:
        found = reader.list_topics(timeout=METADATA_SECONDS).topics.get(topic)
        if found is None:
            return
        numbers = set(found.partitions)
        unread = numbers if id is None else {partition_of(id, len(numbers))}
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        give_up_at = time.monotonic() + SILENCE_SECONDS
        while unread:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{topic} could not be read to its end")
            first = reader.poll(POLL_SECONDS)
            if first is None:
                continue
            give_up_at = time.monotonic() + SILENCE_SECONDS
            records = []
            for record in (first, *reader.consume(BATCH_RECORDS, 0)):
                error = record.error()
                if error is None:
                    records.append((record.key() or b"", record.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(record.partition())
                elif error.fatal():
                    raise KafkaException(error)
            state.apply(records)
    finally:
        reader.close()

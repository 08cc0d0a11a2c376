"""A look into the state topic from outside: what a service has in hand now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from headrace.ledger import clients
from headrace.ledger.book import Book
from headrace.ledger.cache import Cache
from headrace.ledger.machine import Entry, Machine
from headrace.ledger.records import partition_of
from headrace.ledger.topics import Names

BATCH_RECORDS = 5_000
POLL_SECONDS = 0.1
METADATA_SECONDS = 20.0
# Nothing came for so long, though the end was not reached.
SILENCE_SECONDS = 30.0
# Marks nothing that was ever written, so that nothing is passed over.
NO_WRITER = -1


def entries(
    settings: Mapping[str, Any], machine: Machine, id: str | None = None
) -> Iterator[Entry]:
    """What is known of all ids, or of one, with bodies; the next due one first.

    TimeoutError if the brokers fall silent. Owns and changes nothing.
    """
    cache = Cache.in_file()
    try:
        book = Book(machine, cache, NO_WRITER, 0)
        _read(settings, Names(machine.name).state, book, id)
        yield from (entry for entry in cache.all() if id is None or entry.id == id)
    finally:
        cache.close()


def _read(settings: Mapping[str, Any], topic: str, book: Book, id: str | None) -> None:
    # Nothing is joined by this name.
    consumer = clients.consumer(settings, f"{topic}-look")
    try:
        found = consumer.list_topics(timeout=METADATA_SECONDS).topics.get(topic)
        if found is None:
            return
        numbers = set(found.partitions)
        behind = numbers if id is None else {partition_of(id, len(numbers))}
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in behind])
        give_up_at = time.monotonic() + SILENCE_SECONDS
        while behind:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{topic} was not read to its end")
            first = consumer.poll(POLL_SECONDS)
            if first is None:
                continue
            give_up_at = time.monotonic() + SILENCE_SECONDS
            records = []
            for record in (first, *consumer.consume(BATCH_RECORDS, 0)):
                error = record.error()
                if error is None:
                    records.append((record.key() or b"", record.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    behind.discard(record.partition())
                elif error.fatal():
                    raise KafkaException(error)
            book.take(records)
    finally:
        consumer.close()

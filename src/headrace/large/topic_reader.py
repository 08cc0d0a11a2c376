"""Reads records again, outside of any group: earlier chunks, or all claim checks of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import Unavailable
from headrace.large.headers import CLAIM, kind_of

RECALL_RECORDS = 100
SCAN_RECORDS = 1_000
POLL_SECONDS = 0.5
# A partition that returns nothing for this long is unavailable.
SILENCE_SECONDS = 30.0

# Settings that only a member of a group may have.
_MEMBER_SETTINGS = ("group.instance.id", "group.protocol", "group.remote.assignor", "on_commit")


class RecallFailed(Unavailable):
    """Earlier chunks cannot be read now."""


def recall(
    config: Mapping[str, Any], topic: str, partition: int, start: int, end: int
) -> Iterator[Any]:
    """The records of a partition from `start` up to `end`, which must be a record's offset.

    Records that retention has deleted are left out. RecallFailed if the partition is unavailable.
    """
    from confluent_kafka import TopicPartition

    consumer = _consumer(config, "headrace-large-recall")
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        for record in _read(consumer, RECALL_RECORDS):
            if record is None:
                raise RecallFailed(
                    f"{topic}/{partition} cannot be read from offset {start} up to {end}"
                )
            if record.error() is None:
                if record.offset() >= end:
                    return
                yield record
    finally:
        consumer.close()


def claimed_names(config: Mapping[str, Any], topic: str) -> set[str]:
    """The names of the bodies of all claim checks in a topic; reads the whole topic.

    Records of open and aborted transactions count too. Unavailable if the topic cannot be read to
    its end.
    """
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

    scan = {
        # The end of a partition is known when a fetch has waited this long.
        "fetch.wait.max.ms": 10,
        **config,
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
    }
    consumer = _consumer(scan, "headrace-large-scan")
    names: set[str] = set()
    try:
        unread = set(consumer.list_topics(topic, timeout=SILENCE_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        records = _read(consumer, SCAN_RECORDS)
        while unread:
            record = next(records)
            if record is None:
                raise Unavailable(f"{topic} cannot be read to its end")
            error = record.error()
            if error is None:
                if kind_of(record.headers()) == CLAIM:
                    names.add((record.value() or b"").decode("utf-8", "replace"))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(record.partition())
        return names
    finally:
        consumer.close()


def _consumer(config: Mapping[str, Any], group: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            **{name: value for name, value in config.items() if name not in _MEMBER_SETTINGS},
            # The library requires a group, but this consumer neither joins it nor commits.
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }
    )


def _read(consumer: Any, records_max: int) -> Iterator[Any]:
    """Records and errors as they come; None when there was nothing but errors for too long."""
    from confluent_kafka import KafkaError

    give_up_at = time.monotonic() + SILENCE_SECONDS
    while True:
        for record in consumer.consume(records_max, POLL_SECONDS):
            error = record.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                give_up_at = time.monotonic() + SILENCE_SECONDS
            yield record
        if time.monotonic() > give_up_at:
            yield None

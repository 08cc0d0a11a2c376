"""Chunks read once more from their partition, for a message that began before its reader did."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import Unavailable

POLL_RECORDS = 100
POLL_SECONDS = 0.5
# A partition that gives nothing for so long is away.
STILL_SECONDS = 30.0

# What belongs to a member of a group.
_OF_A_MEMBER = ("group.instance.id", "group.protocol", "group.remote.assignor", "on_commit")


class RecallFailed(Unavailable):
    """Earlier chunks cannot be read now."""


def recall(
    config: Mapping[str, Any], topic: str, partition: int, start: int, end: int
) -> Iterator[Any]:
    """The records of a partition from `start` up to `end`, which must be a record's offset.

    What retention has removed meanwhile is left out. RecallFailed if the partition is away.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **{name: value for name, value in config.items() if name not in _OF_A_MEMBER},
            # Nothing is joined or committed, but the library wants a name.
            "group.id": "headrace-large-recall",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        until_s = time.monotonic() + STILL_SECONDS
        while True:
            for record in consumer.consume(POLL_RECORDS, POLL_SECONDS):
                if record.error() is not None:
                    continue
                until_s = time.monotonic() + STILL_SECONDS
                if record.offset() >= end:
                    return
                yield record
            if time.monotonic() > until_s:
                raise RecallFailed(
                    f"{topic}/{partition} cannot be read from offset {start} up to {end}"
                )
    finally:
        consumer.close()

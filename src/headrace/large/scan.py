"""Which bodies the records of a topic need, for topics whose records do not go by their age."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from headrace.errors import Unavailable
from headrace.large.headers import CLAIM, record_kind

BATCH_RECORDS = 1_000
POLL_SECONDS = 0.5
STILL_SECONDS = 30.0


def names_in(config: Mapping[str, Any], topic: str) -> set[str]:
    """The names of the bodies of all claim checks that a topic has now; reads all of it.

    Records of open and of aborted transactions count too. Raises Unavailable if the topic cannot be
    read to its end.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            # The end of a partition is known when a fetch has waited this long.
            "fetch.wait.max.ms": 10,
            **config,
            "group.id": "headrace-large-scan",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    names: set[str] = set()
    try:
        unread = set(consumer.list_topics(topic, timeout=STILL_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        until_s = time.monotonic() + STILL_SECONDS
        while unread:
            for record in consumer.consume(BATCH_RECORDS, POLL_SECONDS):
                until_s = time.monotonic() + STILL_SECONDS
                error = record.error()
                if error is None:
                    if record_kind(record) == CLAIM:
                        names.add((record.value() or b"").decode("utf-8", "replace"))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(record.partition())
            if time.monotonic() > until_s:
                raise Unavailable(f"{topic} cannot be read to its end")
        return names
    finally:
        consumer.close()

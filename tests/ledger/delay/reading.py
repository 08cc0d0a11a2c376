"""All records of a topic, as a reader of what is committed has them now."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka


def read_all(kafka: Kafka, topic: str) -> list[Any]:
    """The records of a topic up to its end; none if it is not there."""
    consumer = Consumer(
        {
            **kafka.quiet,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end is known when a fetch has waited
        }
    )
    try:
        found = consumer.list_topics(timeout=TIMEOUT_SECONDS).topics.get(topic)
        behind = set(found.partitions) if found else set()
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in behind])
        records = []
        give_up_at = time.monotonic() + TIMEOUT_SECONDS
        while behind:
            assert time.monotonic() < give_up_at, f"{topic} has no end"
            for record in consumer.consume(1_000, 0.1):
                if record.error() is None:
                    records.append(record)
                elif record.error().code() == KafkaError._PARTITION_EOF:
                    behind.discard(record.partition())
        return records
    finally:
        consumer.close()

"""Generated topics, written by stock clients, and what a plain consumer reads of them."""

from __future__ import annotations

import random
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Partition, offset, key, value, timestamp in ms, its type, headers.
Row = tuple[int, int, bytes | None, bytes | None, int, int, Any]


def generate(kafka: Kafka, seed: int, partitions: int = 3) -> str:
    """A topic with a bit of everything: codecs, batch sizes, nulls, headers, aborts, deletes."""
    chance = random.Random(seed)
    append = chance.random() < 0.3
    # Their times are of the last century.
    config = {"retention.ms": "-1"}
    if append:
        config["message.timestamp.type"] = "LogAppendTime"
    topic = kafka.topic(f"made-{seed}", partitions, config)
    for number in range(chance.randrange(3, 7)):
        settings = {
            **kafka.quiet,
            "compression.type": chance.choice(CODECS),
            "batch.size": chance.choice([100, 2000, 100_000]),
            "linger.ms": chance.choice([0, 5, 50]),
        }
        ending = chance.choice(["none", "none", "commit", "abort"])
        if ending != "none":
            settings["transactional.id"] = f"{topic}-{number}"
        producer = Producer(settings)
        if ending != "none":
            producer.init_transactions(TIMEOUT_SECONDS)
            producer.begin_transaction()
        for _ in range(chance.randrange(1, 300)):
            producer.produce(topic, **_record(chance, partitions))
        assert producer.flush(TIMEOUT_SECONDS) == 0
        if ending == "commit":
            producer.commit_transaction(TIMEOUT_SECONDS)
        elif ending == "abort":
            producer.abort_transaction(TIMEOUT_SECONDS)
    if chance.random() < 0.5:
        _delete_some(kafka, topic, chance)
    return topic


def _record(chance: random.Random, partitions: int) -> dict[str, Any]:
    names = [f"h{chance.randrange(3)}" for _ in range(chance.choice([0, 0, 0, 1, 3]))]
    return {
        "key": chance.choice([None, b"", b"k%d" % chance.randrange(20)]),
        "value": chance.choice([None, b"", chance.randbytes(chance.choice([3, 100, 2000]))]),
        "partition": chance.randrange(partitions),
        "timestamp": chance.randrange(1, 2**40),
        "headers": [(name, chance.choice([None, b"", b"v"])) for name in names],
    }


def _delete_some(kafka: Kafka, topic: str, chance: random.Random) -> None:
    consumer = Consumer({**kafka.quiet, "group.id": "deleter"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_SECONDS)
    consumer.close()
    if end:
        delete_before(kafka, topic, chance.randrange(end))


def delete_before(kafka: Kafka, topic: str, offset: int) -> None:
    """Delete the records of partition 0 before an offset."""
    admin = AdminClient(kafka.quiet)
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result(TIMEOUT_SECONDS)


def consume(kafka: Kafka, topic: str) -> list[Row]:
    """All committed records of a topic, by a plain consumer."""
    consumer = Consumer(
        {
            **kafka.quiet,
            "group.id": "plain",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end is known when a fetch has waited
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    numbers = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
    places = []
    for number in numbers:
        low, _ = consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=TIMEOUT_SECONDS
        )
        places.append(TopicPartition(topic, number, low))
    consumer.assign(places)
    unread, found = set(numbers), []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while unread:
        assert time.monotonic() < deadline, "the topic was not read in time"
        record = consumer.poll(1.0)
        if record is None:
            continue
        error = record.error()
        if error is None:
            found.append(_row(record))
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            unread.discard(record.partition())
    consumer.close()
    return sorted(found, key=lambda row: row[:2])


def _row(record: Any) -> Row:
    kind, time_ms = record.timestamp()
    headers = record.headers()
    return (
        record.partition(),
        record.offset(),
        record.key(),
        record.value(),
        time_ms,
        # The library counts from one.
        kind - 1,
        [tuple(header) for header in headers] if headers else None,
    )


def from_spark(rows: list[Any]) -> list[Row]:
    """Rows of the source in the same form; timestamps were cast to whole milliseconds."""
    found: list[Row] = [
        (
            row["partition"],
            row["offset"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            row["time_ms"],
            row["timestampType"],
            None
            if row["headers"] is None
            else [
                (it["key"], None if it["value"] is None else bytes(it["value"]))
                for it in row["headers"]
            ],
        )
        for row in rows
    ]
    return sorted(found, key=lambda row: row[:2])

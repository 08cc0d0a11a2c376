"""The Kafka clients of a ledger: what its consumers and producers are told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from headrace.client.retry_loop import retry
from headrace.client.settings import Kind, settings_of, translate
from headrace.ledger.topics import DEAD_BYTES_MAX

# How soon a dead instance's partitions go to another, and how long a living one may be silent.
SESSION_MS = 10_000
SILENCE_MS = 60_000
# How soon it looks for partitions that were not there before.
LOOK_MS = 10_000
# What a dead instance left open is ended by its successor, or by the broker after this.
TRANSACTION_MS = 20_000
# A record that a topic does not take holds its transaction for so long, and no longer: well below
# the time after which the broker ends the transaction, which nobody could go on from.
MESSAGE_MS = 5_000
OPERATION_SECONDS = 20.0
ATTEMPTS_MAX = 3


def consumer(settings: Mapping[str, Any], group: str) -> Consumer:
    """A member of a group that reads what is committed."""
    usual = {
        "session.timeout.ms": SESSION_MS,
        "max.poll.interval.ms": SILENCE_MS,
        # Who leads a group while brokers come back may see a topic without partitions, and share
        # out nothing: it looks again this soon, not after five minutes.
        "topic.metadata.refresh.interval.ms": LOOK_MS,
        # What is fetched ahead is memory.
        "queued.max.messages.kbytes": 16_384,
        "queued.min.messages": 20_000,
        "fetch.queue.backoff.ms": 10,
    }
    own = {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "partition.assignment.strategy": "cooperative-sticky",
        "allow.auto.create.topics": False,
    }
    return Consumer({**usual, **_of_kind(settings, "consumer"), **own})


def producer(settings: Mapping[str, Any], transactional_id: str) -> Producer:
    """A producer of transactions; whoever had its id before is fenced when this returns."""
    own = {
        "transactional.id": transactional_id,
        "acks": "all",
        "enable.idempotence": True,
        # One transaction has many records, and its commit does not wait for more.
        "linger.ms": 5,
        "message.max.bytes": DEAD_BYTES_MAX,
        "partitioner": "murmur2_random",
    }
    usual = {"transaction.timeout.ms": TRANSACTION_MS, "message.timeout.ms": MESSAGE_MS}
    made = Producer({**usual, **_of_kind(settings, "producer"), **own})
    patiently(made.init_transactions)
    return made


def patiently(operation: Any) -> None:
    """Do a step of a transaction, again while that may help; KafkaException if it does not."""
    retry(partial(operation, OPERATION_SECONDS), _at_once, attempts_max=ATTEMPTS_MAX)


def _at_once(problem: Exception) -> float | None:
    is_passing = isinstance(problem, KafkaException) and problem.args[0].retriable()
    return 0.0 if is_passing else None


def _of_kind(settings: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    return translate({"log_level": 0, **settings_of(settings, kind)}, kind)

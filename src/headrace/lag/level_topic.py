"""The levels of all groups, in a compacted topic of one partition that only the leader writes.

The lag service that owns the partition leads; the others stand by. A new leader fences its
predecessor (InitProducerId), whose late writes are then refused, so that it does not alarm either.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException

from headrace.client.admin.topics import NeededTopic, admin_client, make_topics
from headrace.client.compacted import CompactedReader
from headrace.client.producer import Producer
from headrace.client.settings import translate
from headrace.lag.levels import Level, Reading
from headrace.lag.watch_machine import StoredLevel

TOPIC = "headrace.lag"
GROUP = "headrace.lag"
TRANSACTIONAL_ID = "headrace.lag"
# The shortest that brokers accept by default: how soon another takes over after a crash.
SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 10_000
READ_SECONDS = 30.0
POLL_SECONDS = 0.1

_log = logging.getLogger("headrace.lag")


class Leadership:
    """A member of the group of all lag services; `is_held` while it owns the partition."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.is_held = False
        self._problem: Exception | None = None
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                **translate(settings, "consumer"),
                "group.id": GROUP,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
                # The leader stays the leader when others join.
                "partition.assignment.strategy": "cooperative-sticky",
                # Nothing is committed: the group only elects the leader.
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )
        self._thread = threading.Thread(target=self._run, name="lag-leadership", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the leadership to another process."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error that has ended it, if there is one."""
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                message = self._consumer.poll(POLL_SECONDS)
                error = None if message is None else message.error()
                if error is not None and error.fatal():
                    raise KafkaException(error)
        except Exception as problem:
            self._problem = problem
        finally:
            self.is_held = False
            self._consumer.close()

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
            self.is_held = True
            _log.info("this process leads the lag services now")

    def _revoke(self, _consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self.is_held = False


class LevelTopic:
    """Reads and writes the levels as the leader; KafkaException once fenced."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.known: dict[str, StoredLevel] = {}
        self._producer = Producer(
            {
                **settings,
                "transactional.id": TRANSACTIONAL_ID,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        try:
            self._producer.init_transactions()
            with CompactedReader(settings, TOPIC, self._take) as reader:
                if not reader.caught_up.wait(READ_SECONDS):
                    raise TimeoutError(f"{TOPIC} could not be read in {READ_SECONDS:g} s")
        except BaseException:
            self.close()
            raise

    def write(self, levels: Mapping[str, StoredLevel]) -> None:
        """Store levels in one transaction; they are durable, and this process leads, on return."""
        self._producer.begin()
        for name, stored in levels.items():
            is_done = stored.level is Level.OK and stored.is_notified
            value = None if is_done else _to_json(stored)
            self._producer.send(TOPIC, value, key=name.encode())
        self._producer.commit()

    def close(self) -> None:
        """Close the producer; the levels stay in the topic."""
        self._producer.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        name = key.decode()
        if value is None:
            self.known.pop(name, None)
        else:
            self.known[name] = _from_json(value)


def make_topic(settings: Mapping[str, Any]) -> None:
    """Create the topic if it is missing."""
    needed = NeededTopic(TOPIC, 1, must={"cleanup.policy": "compact"})
    make_topics(admin_client(settings), [needed])


def _to_json(stored: StoredLevel) -> bytes:
    return json.dumps(
        {
            "level": stored.level.word,
            "was": stored.was.word,
            "since_ms": stored.since_ms,
            "told": stored.is_notified,
            "records": stored.reading.records,
            "behind_ms": stored.reading.behind_ms,
        }
    ).encode()


def _from_json(value: bytes) -> StoredLevel:
    row = json.loads(value)
    return StoredLevel(
        level=Level[row["level"].upper()],
        was=Level[row["was"].upper()],
        since_ms=row["since_ms"],
        is_notified=row["told"],
        reading=Reading(row["records"], row["behind_ms"]),
    )

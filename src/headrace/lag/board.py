"""The board: the levels of all groups in a topic of one partition, written by one process.

Who has the partition alarms; the others stand by. A new owner fences the one before it
(InitProducerId), so what that one still means to write is refused, and so not told.
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
from headrace.lag.watch import Watched

TOPIC = "headrace.lag"
GROUP = "headrace.lag"
TRANSACTIONAL_ID = "headrace.lag"
# The shortest that brokers take unless told otherwise: how soon another takes over after a crash.
SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 10_000
READ_SECONDS = 30.0
POLL_SECONDS = 0.1

_log = logging.getLogger("headrace.lag")


class Seat:
    """A member of the group of all lag services; it `is_taken` while the partition is its own."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.is_taken = False
        self._problem: Exception | None = None
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                **translate(settings, "consumer"),
                "group.id": GROUP,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
                # Whoever has the seat keeps it when others come.
                "partition.assignment.strategy": "cooperative-sticky",
                # Nothing is committed: the group only decides who is who.
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [TOPIC], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )
        self._thread = threading.Thread(target=self._run, name="lag-seat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the seat to somebody else."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
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
            self.is_taken = False
            self._consumer.close()

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
            self.is_taken = True
            _log.info("this process watches the lag of groups now")

    def _revoke(self, _consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self.is_taken = False


class Board:
    """The levels as the owner of the seat reads and writes them; KafkaException once fenced."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.known: dict[str, Watched] = {}
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
                    raise TimeoutError(f"{TOPIC} was not read in {READ_SECONDS:g} s")
        except BaseException:
            self.close()
            raise

    def write(self, states: Mapping[str, Watched]) -> None:
        """Write states down in one transaction; durable, and this process the owner, when done."""
        self._producer.begin()
        for name, watched in states.items():
            is_done = watched.level is Level.OK and watched.is_told
            value = None if is_done else _to_json(watched)
            self._producer.send(TOPIC, value, key=name.encode())
        self._producer.commit()

    def close(self) -> None:
        """Let go of it; the levels stay in the topic."""
        self._producer.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        name = key.decode()
        if value is None:
            self.known.pop(name, None)
        else:
            self.known[name] = _from_json(value)


def make_topic(settings: Mapping[str, Any]) -> None:
    """Make the topic of levels unless it is there."""
    needed = NeededTopic(TOPIC, 1, must={"cleanup.policy": "compact"})
    make_topics(admin_client(settings), [needed])


def _to_json(watched: Watched) -> bytes:
    return json.dumps(
        {
            "level": watched.level.word,
            "was": watched.was.word,
            "since_ms": watched.since_ms,
            "told": watched.is_told,
            "records": watched.reading.records,
            "behind_ms": watched.reading.behind_ms,
        }
    ).encode()


def _from_json(value: bytes) -> Watched:
    row = json.loads(value)
    return Watched(
        level=Level[row["level"].upper()],
        was=Level[row["was"].upper()],
        since_ms=row["since_ms"],
        is_told=row["told"],
        reading=Reading(row["records"], row["behind_ms"]),
    )

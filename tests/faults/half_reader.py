"""Reads the target all the time: what is there before its local transaction is, was visible early.

It reads uncommitted records, too: an undecided message is in no topic at all.
"""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

READ_SECONDS = 0.1
JOIN_SECONDS = 60.0


class TargetReader:
    """Compares each record, when it comes, with the database of that moment or a later one."""

    def __init__(self, bootstrap: str, engine: Engine, topic: str, partitions: int) -> None:
        self.seen = 0
        self.early: set[str] = set()
        self._engine = engine
        self._places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "half-reader",
                "isolation.level": "read_uncommitted",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
            assert not self._thread.is_alive()

    def _look(self) -> None:
        new: set[str] = set()
        self._consumer.assign(self._places)
        while not self._stop.is_set() or new:
            for record in self._consumer.consume(1_000, READ_SECONDS):
                if record.error() is None:
                    new.add(dict(record.headers())["headrace-id"].decode())
            if new:
                try:
                    known = self._done()
                except SQLAlchemyError:
                    continue
                self.seen += len(new)
                self.early |= new - known
                new.clear()
        self._consumer.close()

    def _done(self) -> set[str]:
        with self._engine.connect() as connection:
            return {id for (id,) in connection.execute(text("SELECT id FROM orders"))}

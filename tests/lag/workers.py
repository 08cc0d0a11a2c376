"""Consumers that take their time: members of a group as applications have them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException

TIMEOUT_SECONDS = 60.0


class Worker:
    """Reads a topic one record after the other, each for this long, and commits each.

    With `stuck_at`, it never gets over the record at that offset.
    """

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, each_s: float, stuck_at: int | None = None
    ) -> None:
        self.joined = threading.Event()
        self._stop = threading.Event()
        self._each_s = each_s
        self._stuck_at = stuck_at
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
                "session.timeout.ms": 6000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS)

    def _assigned(self, _consumer: Any, _partitions: Any) -> None:
        self.joined.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            if self._stuck_at is not None and message.offset() >= self._stuck_at:
                self._stop.wait()
            elif not self._stop.wait(self._each_s):
                self._commit(message)
        self._consumer.close()

    def _commit(self, message: Any) -> None:
        try:
            self._consumer.commit(message, asynchronous=False)
        except KafkaException:
            # In the middle of a rebalance: its next owner reads it again.
            return

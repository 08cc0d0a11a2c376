"""Members of a group that keep polling while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

TIMEOUT_SECONDS = 60.0


class Member:
    """A consumer in a thread of its own that notes what the group gives it and takes from it."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        self.owned: set[int] = set()
        self.assigned = self.revoked = self.lost = self.read = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        given = {name.replace("_", "."): value for name, value in settings.items()}
        if given.get("group.protocol") != "consumer":
            # In the next protocol (KIP-848) these are the broker's.
            given = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000, **given}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **given,
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_SECONDS)

    def wait_for(self, is_so: Callable[[Member], bool]) -> None:
        """Wait until the group has made it so."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_so(self), TIMEOUT_SECONDS), vars(self)

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.02)
            if message is not None and message.error() is None:
                with self._changed:
                    self.read += 1
                    self._changed.notify_all()
        self._consumer.close()

    def _assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self.assigned += 1
            self.owned = {place.partition for place in partitions}
            self._changed.notify_all()

    def _revoke(self, _: Any, _partitions: list[TopicPartition]) -> None:
        with self._changed:
            self.revoked += 1
            self.owned = set()
            self._changed.notify_all()

    def _lose(self, _: Any, _partitions: list[TopicPartition]) -> None:
        with self._changed:
            self.lost += 1
            self._changed.notify_all()

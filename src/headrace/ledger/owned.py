"""One state partition in the hands of its owner: producer, book, and how far it is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.ledger.book import Book, Plan
from headrace.ledger.cache import Cache
from headrace.ledger.machine import Machine
from headrace.ledger.writer import Failed, Writer

# How long it rests after a transaction came to nothing, growing while it goes on.
REST_SECONDS = 0.1
REST_SECONDS_MAX = 5.0


class Owned:
    """Acts only when it is read to where the partition ended when the last owner was fenced."""

    def __init__(
        self,
        number: int,
        producer: Writer,
        machine: Machine,
        writer: int,
        now_ms: int,
        cache_dir: Path | None,
    ) -> None:
        self.number = number
        self._producer = producer
        self.until = -1
        self.position = 0
        self.is_caught_up = False
        self._position_before = -1
        self._is_held = False
        self.rest_until = 0.0
        self._rest_s = REST_SECONDS
        self._cache = Cache.in_file(cache_dir)
        self.book = Book(machine, self._cache, writer, now_ms)

    def close(self) -> None:
        """Forget it; what is open is for the next owner to abort."""
        self._cache.close()
        self._producer.close()

    def enter(self, records: Sequence[Any]) -> None:
        """Enter records in their order; those that were read before are passed over."""
        new = [record for record in records if record.offset() >= self.position]
        if new:
            self.book.take((record.key(), record.value()) for record in new if record.key())
            self.reach(new[-1].offset() + 1)

    def reach(self, position: int) -> None:
        """All before this offset is entered, or was never committed."""
        self.position = max(self.position, position)
        if self.position >= self.until:
            self.is_caught_up = True

    def is_held_now(self, end: int) -> bool:
        """Whether it has not got on since the last look, though there is more; once for each time.

        `end` is where the partition ended at the last look.
        """
        was_held = self._is_held
        self._is_held = self.position == self._position_before and self.position < end
        self._position_before = self.position
        return self._is_held and not was_held

    def begin(self, plan: Plan, state_topic: str) -> None:
        """Send all that a plan writes, in a transaction of its own."""
        producer = self._producer
        producer.begin()
        for tag, (_, action) in enumerate(plan.items):
            for topic, key, value, headers, _ in action.send:
                producer.send(topic, value, key, headers=headers, tag=tag)
        for written, value in plan.writes(self.book.writer):
            producer.send(state_topic, value, written, partition=self.number)

    def commit(self) -> Failed | None:
        """Commit what was begun; if that is refused, abort it and say why.

        KafkaException if nobody knows, or if another owns the partition now.
        """
        failed = self._producer.commit()
        if failed is None:
            self._rest_s = REST_SECONDS
        return failed

    def rest(self, now_s: float) -> None:
        """Let it be for a while."""
        self.rest_until = now_s + self._rest_s
        self._rest_s = min(2 * self._rest_s, REST_SECONDS_MAX)

"""One state partition in the hands of its owner: producer, book, and how far it is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.reliability.ledger import clients
from headrace.reliability.ledger.book import Book, Plan
from headrace.reliability.ledger.cache import Cache
from headrace.reliability.ledger.machine import Machine

FULL_SECONDS = 0.05


class Owned:
    """Acts only when it is read to where the partition ended when the last owner was fenced."""

    def __init__(
        self,
        number: int,
        producer: Producer,
        machine: Machine,
        writer: int,
        now_ms: int,
        cache_dir: Path | None,
    ) -> None:
        self.number = number
        self.producer = producer
        self.until = -1
        self.position = 0
        self.is_caught_up = False
        self.rest_until = 0.0
        self.rest_s = 0.1
        self._cache = Cache.in_file(cache_dir)
        self.book = Book(machine, self._cache, writer, now_ms)
        self._failures: list[KafkaError] = []

    def close(self) -> None:
        """Forget it; what is open is for the next owner to abort."""
        self._cache.close()

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

    def begin(self, plan: Plan, state_topic: str) -> None:
        """Send all that a plan writes, in a transaction of its own."""
        self._failures.clear()
        self.producer.begin_transaction()
        try:
            for outgoing in plan.sends:
                headers = list(outgoing.headers)
                self._send(outgoing.topic, outgoing.value, outgoing.key, -1, headers)
            for key, value in plan.writes(self.book.writer):
                self._send(state_topic, value, key, self.number, None)
        except KafkaException as problem:
            self._failures.append(problem.args[0])

    def commit(self) -> KafkaError | None:
        """Commit what was begun; if that is refused, abort it and say why.

        KafkaException if nobody knows, or if another owns the partition now.
        """
        try:
            if not self._failures:
                clients.patiently(self.producer.commit_transaction)
                return None
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            self._failures.append(error)
        clients.patiently(self.producer.abort_transaction)
        lasting = (error for error in self._failures if not clients.is_passing(error))
        return next(lasting, self._failures[0])

    def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: list[tuple[str, bytes | None]] | None,
    ) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, partition, self._reported, headers=headers)
                return
            except BufferError:
                self.producer.poll(FULL_SECONDS)

    def _reported(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self._failures.append(error)

"""A producer of one transaction after the other, which knows of each record what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.ledger import clients
from headrace.ledger.machine import Headers

FULL_SECONDS = 0.05

# What is told of records that fell with their transaction, by no fault of their own.
_FELL_TOO = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE, KafkaError._DESTROY}
)


class BadRecord(NamedTuple):
    """A record that was not written, and what was said of it."""

    topic: str
    # The sender's own number for it.
    tag: int
    error: KafkaError


class Failed(NamedTuple):
    """Why a transaction came to nothing; without records, nobody has said which is at fault."""

    cause: KafkaError
    records: tuple[BadRecord, ...] = ()


class Writer:
    """Whoever had the transactional id before is fenced when this is made; for one thread."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str) -> None:
        self._producer = clients.producer(settings, transactional_id)
        self._bad: list[BadRecord] = []
        # What was said of the transaction as a whole.
        self._cause: KafkaError | None = None

    def begin(self) -> None:
        """Begin a transaction."""
        self._bad.clear()
        self._cause = None
        self._producer.begin_transaction()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        tag: int = -1,
    ) -> None:
        """Send a record; `commit` says what became of it."""
        while not self._bad:
            try:
                told = partial(self._told, tag)
                given: Any = list(headers) or None
                self._producer.produce(topic, value, key, partition, told, headers=given)
                return
            except BufferError:
                self._producer.poll(FULL_SECONDS)
            except KafkaException as problem:
                self._bad.append(BadRecord(topic, tag, problem.args[0]))

    def send_position(self, position: TopicPartition, generation: Any) -> None:
        """Commit a group's position with the transaction."""
        self._step(partial(self._producer.send_offsets_to_transaction, [position], generation))

    def commit(self) -> Failed | None:
        """Commit what was begun; if that is refused, abort it and say why.

        KafkaException if nobody knows, or if another has the transactional id now.
        """
        self._step(self._producer.commit_transaction)
        if self._cause is None and not self._bad:
            return None
        clients.patiently(self._producer.abort_transaction)
        records = tuple(bad for bad in self._bad if bad.error.code() not in _FELL_TOO)
        cause = records[0].error if records else self._cause
        return Failed(cause or self._bad[0].error, records)

    def _step(self, step: Callable[[float], object]) -> None:
        """Do a step of a transaction that can still end well."""
        if self._cause is not None or self._bad:
            return
        try:
            clients.patiently(step)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            self._cause = error

    def close(self) -> None:
        """Forget it; what is open is for the next owner to abort."""
        # What is on its way holds this object and so the client, whom nobody would end then.
        self._producer.purge()
        self._producer.poll(0)
        del self._producer

    def _told(self, tag: int, error: KafkaError | None, record: Any) -> None:
        if error is not None:
            self._bad.append(BadRecord(record.topic(), tag, error))

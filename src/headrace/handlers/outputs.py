"""Consume, process, produce in one Kafka transaction: a handler's output and its offsets."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.client.delayed import After, At, by_clock
from headrace.client.payloads import encode, to_send
from headrace.errors import Unavailable
from headrace.handlers.execution import Execution, IsOpen, Positions, Revoked

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.message import Message
    from headrace.client.producer import Producer
    from headrace.handlers.context import AppContext

_log = logging.getLogger("headrace.handlers")


class Output:
    """What a handler sends within its transaction; seen by readers with its offsets, or never."""

    def __init__(self, producer: Producer, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        after: After | None = None,
        at: At | None = None,
    ) -> None:
        """Send a message; visible (to `read_committed`) when the transaction is committed.

        `after` and `at` have it delivered later, see Producer.send.
        """
        after, at = by_clock(self._clock, after, at)
        with _brokers():
            self._producer.send(
                topic, to_send(value), key=encode(key), headers=headers, after=after, at=at
            )


class KafkaTransactions:
    """Runs messages of a handler in transactions, with one producer for each that is open.

    The transactional ids are random: zombies are fenced by the group's generation (KIP-447), which
    goes with the offsets and was asked for before the messages are run.
    """

    def __init__(self, execution: Execution, context: AppContext) -> None:
        # Set by the thread that polls: the client lets no other one in while it does.
        self.generation: Any = None
        self._execution = execution
        self._context = context
        # Those that no worker uses now.
        self._idle: list[Producer] = []

    def run(
        self, messages: Sequence[Message], positions: Positions, is_open: IsOpen = lambda: True
    ) -> None:
        """Run messages, commit their output and offsets together; on an error, neither."""
        execution = self._execution
        values = [execution.payload(message) for message in messages]
        generation = self.generation
        # In this order: partitions are closed before the generation moves on, so that this one
        # is not newer than the time when they were ours.
        if not is_open():
            raise Revoked
        producer = self._producer()
        try:
            with _brokers():
                producer.begin()
            execution.call_all(messages, values, Output(producer, self._context.clock))
            with _brokers():
                if positions:
                    offsets = {place: position.next_offset for place, position in positions.items()}
                    producer.send_offsets(offsets, generation)
                producer.commit()
        except BaseException:
            self._abort(producer)
            raise
        self._idle.append(producer)
        execution.confirm(messages)

    def close(self) -> None:
        """Close the producers; what was not committed is aborted."""
        while self._idle:
            self._idle.pop().close()

    def _producer(self) -> Producer:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        from headrace.client.producer import Producer

        producer = Producer(
            {
                **self._context.client_settings("producer"),
                "transactional.id": f"{self._execution.spec.group}-{uuid.uuid4().hex}",
            },
            large=self._context.large,
        )
        try:
            with _brokers():
                producer.init_transactions()
        except BaseException:
            with contextlib.suppress(Exception):
                producer.close()
            raise
        return producer

    def _abort(self, producer: Producer) -> None:
        try:
            producer.abort()
        except Exception as error:
            # It is fenced or fatal: the coordinator aborts what it left, and another goes on.
            _log.info("a producer of %s is replaced: %s", self._execution.spec.name, error)
            with contextlib.suppress(Exception):
                producer.close()
        else:
            self._idle.append(producer)


@contextmanager
def _brokers() -> Iterator[None]:
    """What the brokers refuse is no message's fault."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise Unavailable(f"the transaction was aborted: {error}") from error

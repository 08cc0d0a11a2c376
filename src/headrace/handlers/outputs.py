"""One Kafka transaction for a handler's output and its offsets: consume, process, produce."""

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
    """What a handler sends in its transaction; committed together with its offsets, or never."""

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
        """Send a message; `read_committed` consumers see it when the transaction commits.

        `after` and `at` deliver it later, see Producer.send.
        """
        after, at = by_clock(self._clock, after, at)
        with _brokers():
            self._producer.send(
                topic, to_send(value), key=encode(key), headers=headers, after=after, at=at
            )


class KafkaTransactions:
    """Runs messages of a handler in transactions, with one producer for each open one.

    The transactional ids are random: zombies are fenced by the group's generation (KIP-447), which
    is read before the messages run and goes with their offsets.
    """

    def __init__(self, execution: Execution, context: AppContext) -> None:
        # Set by the session's thread: while it polls, the client admits no other.
        self.generation: Any = None
        self._execution = execution
        self._context = context
        # Producers that no worker uses now.
        self._idle: list[Producer] = []

    def run(
        self, messages: Sequence[Message], positions: Positions, is_open: IsOpen = lambda: True
    ) -> None:
        """Run messages, commit their output and offsets together; on an error, neither."""
        execution = self._execution
        values = [execution.payload(message) for message in messages]
        generation = self.generation
        # The generation is read first. Partitions are closed before it changes, so an open
        # partition was ours in this generation.
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
            # Fenced or fatal: the coordinator aborts what it left, and another producer continues.
            _log.info("replacing a producer of %s: %s", self._execution.spec.name, error)
            with contextlib.suppress(Exception):
                producer.close()
        else:
            self._idle.append(producer)


@contextmanager
def _brokers() -> Iterator[None]:
    """Turns refusals of the brokers, which are no message's fault, into Unavailable."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise Unavailable(f"the transaction was aborted: {error}") from error

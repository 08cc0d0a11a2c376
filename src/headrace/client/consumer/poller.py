"""Takes records from librdkafka: errors are handled, large messages are put together."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from headrace.client.consumer.assignment import Assignment
from headrace.client.consumer.offsets import OffsetReader
from headrace.client.consumer.start import Start
from headrace.client.errors import NoStart
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.client.large import Receiver

# Errors that a retry does not cure.
_LASTING = (
    # Such as a static member that another has fenced: librdkafka never recovers, although the
    # error does not call itself fatal.
    KafkaError._FATAL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError._AUTHENTICATION,
)

_log = logging.getLogger("headrace.client")


class RecordPoller:
    """Polls the library for a consumer, and keeps what a poll could not return for the next."""

    def __init__(
        self,
        client: Any,
        assignment: Assignment,
        offsets: OffsetReader,
        *,
        large: Receiver | None,
        reset: Start | None,
        group: str | None,
    ) -> None:
        # Whether a batch is being read at the moment.
        self.is_batching = False
        self._client = client
        self._assignment = assignment
        self._offsets = offsets
        self._large = large
        self._reset = reset
        self._group = group
        # Read already, and to be returned by the next poll.
        self._held: list[Any] = []
        self._warned: set[str] = set()

    def one(self, timeout_s: float) -> Any:
        """The next record, or None; for a consumer without large messages."""
        if self._held:
            message = self._held.pop(0)
        else:
            message = self._client.poll(timeout_s)
            if self._assignment.failure is not None:
                self.raise_failure([] if message is None else [message])
        if message is None:
            return None
        if message.error() is not None:
            self._on_error(message)
            return None
        return message

    def batch(self, records_max: int, timeout_s: float) -> list[Any]:
        """The records that have arrived, up to a number; waits for the first."""
        messages = self._consume(records_max, timeout_s)
        if any(message.error() is not None for message in messages):
            messages = self._without_errors(messages)
        if self._large is None:
            return messages
        messages = self._large.admit(messages)
        # An earlier poll may have read some of them and could not return them.
        self._held = messages[records_max:] + self._held
        return messages[:records_max]

    def unreturned(self) -> list[Any]:
        """What was read and is not returned yet, in order."""
        left = [] if self._large is None else self._large.left()
        return [*left, *self._held]

    def forget(self, partition: TopicPartition | None = None) -> None:
        """Drop what is held, of one partition or of all."""
        if partition is None:
            self._held = []
        else:
            self._held = [it for it in self._held if (it.topic(), it.partition()) != partition]

    def raise_failure(self, messages: list[Any]) -> None:
        """Raise what a listener has raised; what was read meanwhile is for the next poll."""
        self._held = messages + self._held
        failure, self._assignment.failure = self._assignment.failure, None
        assert failure is not None
        raise failure

    def _consume(self, records_max: int, timeout_s: float) -> list[Any]:
        client, assignment = self._client, self._assignment
        messages, self._held = self._held[:records_max], self._held[records_max:]
        changes = assignment.changes
        self.is_batching = True
        try:
            # The library would wait for that many records, or for the whole time.
            if not messages:
                messages = client.consume(records_max, 0)
            if not messages and timeout_s > 0 and assignment.failure is None:
                first = client.poll(timeout_s)
                if first is not None:
                    messages = [first]
                    if records_max > 1 and assignment.failure is None:
                        messages += client.consume(records_max - 1, 0)
        finally:
            self.is_batching = False
        if changes != assignment.changes:
            messages = self._still_owned(messages)
        if assignment.failure is not None:
            self.raise_failure(messages)
        return messages

    def _still_owned(self, messages: list[Any]) -> list[Any]:
        """Without records of partitions that were revoked and now belong to another member."""
        owned = self._assignment.owned
        return [
            it for it in messages if it.error() is not None or (it.topic(), it.partition()) in owned
        ]

    def _without_errors(self, messages: list[Any]) -> list[Any]:
        records = []
        for at, message in enumerate(messages):
            if message.error() is None:
                records.append(message)
                continue
            try:
                self._on_error(message)
            except BaseException:
                # The library does not return them again, so they are for the next poll.
                self._held = records + messages[at + 1 :] + self._held
                raise
        return records

    def _on_error(self, message: Any) -> None:
        """Raise a lasting error; log a passing one once."""
        error = message.error()
        code = error.code()
        if code == KafkaError._AUTO_OFFSET_RESET and message.topic() is not None:
            self._restart(message.topic(), message.partition())
            return
        if error.fatal() or code in _LASTING:
            raise KafkaException(error)
        text = f"{message.topic() or self._group}: {error.str()}"
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)

    def _restart(self, topic: str, partition: int) -> None:
        """The offset to read next is gone: start again as `auto.offset.reset` says."""
        if self._reset is None:
            raise NoStart(
                f"the offset to read next in {topic}/{partition} no longer exists, and "
                "auto.offset.reset is none",
                "seek to another offset, or set auto.offset.reset to earliest or latest",
            )
        now_ms = time.time_ns() // 1_000_000
        found = self._offsets.at([(topic, partition)], self._reset, now_ms)
        self._assignment.restart(topic, partition, found[topic, partition])

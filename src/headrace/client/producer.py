"""What applications call to send: fire and forget, wait, callback or await; safe by default."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as LibraryProducer

from headrace.client.consumer.offsets import PartitionOffsets, to_partitions
from headrace.client.delayed import DELAY_TOPIC, After, At, DelayCommands, cancel_headers
from headrace.client.delivery import OnDelivery, RecordMetadata, Sent, Watched
from headrace.client.errors import BufferFull, DeliveryFailed, RecordTooLarge
from headrace.client.interceptors import Chain, Outgoing
from headrace.client.large import Record
from headrace.client.partitioners import PartitionCounts, Partitioner, by_name
from headrace.client.serializers import Serializer, serializer
from headrace.client.settings import ClientSettings, boolean, integer, read, with_bootstrap
from headrace.closing import Closing

if TYPE_CHECKING:
    from headrace.client.large import LargeMessages, Sender
    from headrace.client.switches import Switches

# Kafka's defaults.
MAX_BLOCK_MS = 60_000
BUFFER_BYTES = 33_554_432

# Delivery reports are polled for after this many records, and by a thread in between.
RECORDS_PER_POLL = 64
POLL_SECONDS = 0.1
FULL_PAUSE_SECONDS = 0.05
# How long a closing producer waits for the coordinator of its open transaction.
ABORT_SECONDS = 10.0

_NOWHERE = {"bootstrap.servers": ""}

_log = logging.getLogger("headrace.client")

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class Producer(Closing):
    """Sends records, with `acks=all` and idempotence by default; a context manager.

    Settings have Kafka's names. Usable from many threads. `close()`, or the end of the `with`,
    sends what is still in the buffer.
    """

    def __init__(
        self,
        bootstrap: str | ClientSettings,
        *,
        key_serializer: str | Serializer | None = None,
        value_serializer: str | Serializer | None = None,
        partitioner: str | Partitioner | None = None,
        interceptors: Iterable[Any] = (),
        switches: Switches | None = None,
        large: LargeMessages | None = None,
    ) -> None:
        given = with_bootstrap(bootstrap)
        config, own = read(given, "producer")
        self.max_block_ms = integer(own, "max.block.ms", MAX_BLOCK_MS)
        self._key_serializer = serializer(key_serializer or own.get("key.serializer"))
        self._value_serializer = serializer(value_serializer or own.get("value.serializer"))
        self._chain = Chain(tuple(interceptors) or own.get("interceptor.classes"))
        # Checked for every record, so kept as a plain attribute.
        self._has_chain = bool(self._chain)
        self._switches = switches
        self._partitioner = _partitioner(partitioner, own)
        config = {**_defaults(given), **config}
        self._large = None if large is None else large.sender(config)
        self._above = 0 if self._large is None else self._large.above_bytes
        self._producer = LibraryProducer(config)
        self._produce = self._producer.produce
        self._counts = PartitionCounts(self._producer, self.max_block_ms)
        self._delays = DelayCommands(given, self._counts)
        # Without any of these a record goes to the library unchanged.
        self._is_plain = not (
            self._key_serializer
            or self._value_serializer
            or self._chain
            or self._switches
            or self._partitioner
        )
        self._until_poll = RECORDS_PER_POLL
        self._is_in_transaction = False
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="headrace-producer", daemon=True)
        self._poller.start()

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
        after: After | None = None,
        at: At | None = None,
    ) -> Sent:
        """Send a record and return at once; blocks up to `max.block.ms` while the buffer is full.

        It is durable once the returned Sent has a result. `on_delivery(metadata, error)` is called
        from another thread, or from a later `send` or `flush`. With `large`, the value may also be
        a binary file or an iterator of bytes; a large one blocks until all but its end is written.
        With `after` ("15m", milliseconds, a timedelta) or `at` (milliseconds since 1970, a time
        with a zone) the delay service delivers it later; the Sent is done when that service has it.
        """
        if after is not None or at is not None:
            topic, headers, partition = self._delays.command(topic, headers, partition, after, at)
        sent = (
            Sent()
            if on_delivery is None and not self._has_chain
            else Watched(on_delivery, self._chain)
        )
        if not self._is_plain:
            try:
                if self._has_chain:
                    record = Outgoing(topic, value, key, headers, partition, timestamp_ms)
                    record = self._chain.pass_through("on_send", record)
                    topic, value, key = record.topic, record.value, record.key
                    headers, partition = record.headers, record.partition
                    timestamp_ms = record.timestamp_ms
                value, key, partition = self._prepare(topic, value, key, partition)
            except Exception as problem:
                self._chain.tell("on_acknowledgement", None, problem)
                raise
        if partition is None:
            partition = -1
        if headers is not None and not isinstance(headers, list | dict):
            headers = list(headers.items() if isinstance(headers, Mapping) else headers)
        if (
            self._large is not None
            and value is not None
            and (len(value) > self._above if value.__class__ is bytes else self._large.takes(value))
        ):
            whole = Record(topic, value, _bytes(key), headers, partition, timestamp_ms or 0)
            return self._send_large(self._large, whole, sent)
        try:
            self._produce(topic, value, key, partition, sent, None, timestamp_ms or 0, headers)
        except (BufferError, KafkaException) as problem:
            arguments = (topic, value, key, partition, sent, None, timestamp_ms or 0, headers)
            self._insist(problem, arguments)
        self._until_poll -= 1
        if self._until_poll <= 0:
            self._until_poll = RECORDS_PER_POLL
            self._producer.poll(0)
        return sent

    def send_and_wait(
        self, topic: str, value: Any = None, *, timeout: float | None = None, **options: Any
    ) -> RecordMetadata:
        """Send a record, options as for `send`, and return when it is written.

        DeliveryFailed if it was not; after a TimeoutError it may still be written.
        """
        return self.send(topic, value, **options).result(timeout)

    def cancel_delayed(self, id: str) -> Sent:
        """Cancel a delayed message by its `headrace-id`; without effect once it is delivered."""
        partition = self._delays.partition(id)
        return self.send(DELAY_TOPIC, headers=cancel_headers(id), partition=partition)

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records so far are written or failed; returns how many are open."""
        left: int = self._producer.flush() if timeout is None else self._producer.flush(timeout)
        return left

    def close(self, timeout: float | None = None) -> None:
        """Send what is in the buffer (until the timeout) and close; aborts an open transaction."""
        if self._closing.is_set():
            return
        try:
            if self._is_in_transaction:
                self.abort(ABORT_SECONDS)
            self.flush(timeout)
        except KafkaException as problem:
            _log.warning("a transaction is left to its coordinator to abort: %s", problem)
        finally:
            self._closing.set()
            self._poller.join()
            self._producer.close()
            self._chain.tell("close")

    def init_transactions(self, timeout: float | None = None) -> None:
        """Fence older producers with this `transactional.id`; once, before the first `begin`."""
        self._producer.init_transactions(-1 if timeout is None else timeout)

    def begin(self) -> None:
        """Begin a transaction; what is sent from now on belongs to it."""
        self._producer.begin_transaction()
        self._is_in_transaction = True

    def send_offsets(self, positions: PartitionOffsets, group_metadata: Any) -> None:
        """Commit a consumer's positions with the transaction, or not at all."""
        self._producer.send_offsets_to_transaction(to_partitions(positions), group_metadata)

    def commit(self, timeout: float | None = None) -> None:
        """Make the transaction visible; durable when it returns."""
        self._producer.commit_transaction(-1 if timeout is None else timeout)
        self._is_in_transaction = False

    def abort(self, timeout: float | None = None) -> None:
        """Undo the transaction; readers with `read_committed` never see it."""
        self._producer.abort_transaction(-1 if timeout is None else timeout)
        self._is_in_transaction = False

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self._counts(topic)

    def _prepare(
        self, topic: str, value: Any, key: Any, partition: int | None
    ) -> tuple[Any, Any, int | None]:
        """Value, key and partition for the library; waits if the topic has a limit."""
        is_read = self._large is not None and self._large.is_stream(value)
        if self._value_serializer is not None and value is not None and not is_read:
            value = self._value_serializer(value)
        if self._key_serializer is not None and key is not None:
            key = self._key_serializer(key)
        if self._switches is not None:
            self._switches.wait(topic, 1, self.max_block_ms / 1000)
        if partition is None and self._partitioner is not None:
            shown = None if is_read else _bytes(value)
            partition = self._choose(self._partitioner, topic, _bytes(key), shown)
        return value, key, partition

    def _choose(
        self, partitioner: Partitioner, topic: str, key: bytes | None, value: bytes | None
    ) -> int:
        count = self._counts(topic)
        chosen = partitioner(topic, key, value, count)
        if not 0 <= chosen < count:
            raise ValueError(
                f"the partitioner chose partition {chosen} of {topic!r}; return 0 to {count - 1}"
            )
        return chosen

    def _send_large(self, large: Sender, record: Record, sent: Sent) -> Sent:
        def put(part: Record, outcome: Sent) -> None:
            topic, value, key, headers, partition, timestamp_ms = part
            arguments = (topic, value, key, partition, outcome, None, timestamp_ms, headers)
            try:
                self._produce(*arguments)
            except (BufferError, KafkaException) as problem:
                self._again(problem, arguments)

        try:
            large.send(put, record, sent)
        except Exception as failure:
            self._chain.tell("on_acknowledgement", None, failure)
            raise
        return sent

    def _insist(self, problem: Exception, arguments: tuple[Any, ...]) -> None:
        """Try again, and tell the interceptors if that fails."""
        try:
            self._again(problem, arguments)
        except Exception as failure:
            self._chain.tell("on_acknowledgement", None, failure)
            raise

    def _again(self, problem: Exception, arguments: tuple[Any, ...]) -> None:
        """Try again while the buffer is full, up to `max.block.ms`; then raise what is wrong."""
        deadline = time.monotonic() + self.max_block_ms / 1000
        while True:
            if not isinstance(problem, BufferError):
                break
            if time.monotonic() >= deadline:
                problem = BufferFull(
                    f"the buffer was full for {self.max_block_ms} ms (max.block.ms)",
                    "is the broker slow or down? a larger buffer.memory holds more records",
                )
                break
            self._producer.poll(FULL_PAUSE_SECONDS)
            try:
                self._produce(*arguments)
                return
            except (BufferError, KafkaException) as again:
                problem = again
        raise _explain(problem, arguments[0]) from None

    def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(POLL_SECONDS)
            except KafkaException as problem:
                if problem.args[0].fatal():
                    # Such as being fenced: it is lasting, and every later call raises it.
                    return


def _defaults(given: ClientSettings) -> dict[str, Any]:
    """The defaults of settings that are not given."""
    defaults: dict[str, Any] = {
        "acks": "all",
        "enable.idempotence": _may_be_idempotent(given),
        # As Kafka's other clients do: by the key, and without a key one partition at a time.
        "partitioner": "murmur2_random",
    }
    if not any(name.startswith("queue.buffering.max") for name in given):
        defaults.update(read({**_NOWHERE, "buffer.memory": BUFFER_BYTES}, "producer")[0])
        del defaults["bootstrap.servers"]
    return defaults


def _may_be_idempotent(given: ClientSettings) -> bool:
    """As in Kafka: on, unless another setting rules it out."""
    acks = str(given.get("acks", given.get("request.required.acks", "all")))
    flight = given.get("max.in.flight.requests.per.connection", given.get("max.in.flight", 5))
    retries = given.get("retries", given.get("message.send.max.retries", 1))
    return acks in ("all", "-1") and int(flight) <= 5 and int(retries) > 0


def _partitioner(given: str | Partitioner | None, own: ClientSettings) -> Partitioner | None:
    chosen = given if given is not None else own.get("partitioner.class", "key")
    if boolean("partitioner.ignore.keys", own.get("partitioner.ignore.keys", False)):
        chosen = "sticky"
    return by_name(chosen) if isinstance(chosen, str) else chosen


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _explain(problem: Exception, topic: str) -> Exception:
    if isinstance(problem, BufferFull) or not isinstance(problem, KafkaException):
        return problem
    error = problem.args[0]
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return RecordTooLarge(
            f"the record to {topic} is larger than max.request.size",
            "raise max.request.size here and max.message.bytes of the topic, or send less",
            error,
        )
    return DeliveryFailed(f"a record to {topic} was not sent: {error.str()}", error=error)

"""The transaction of a sink's task: its records and its marker, or nothing.

It speaks the wire protocol itself: Arrow batches become record batches without Python objects in
between, and about ten short requests take less time than a client library needs to start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Self, TypeVar

import pyarrow as pa

from headrace.client.retry_loop import retry
from headrace.client.wire.cluster import BrokerAddress, CoordinatorOf
from headrace.client.wire.connection import AnswerT
from headrace.client.wire.errors import refused
from headrace.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.offset_fetch import OffsetFetchResponse
from headrace.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.protocol.compression import Codec
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.protocol.schema import Message
from headrace.spark.connection import Connection
from headrace.spark.errors import SinkError
from headrace.spark.sink.batch_sender import BatchSender
from headrace.spark.sink.markers import (
    FETCH_ONE_VERSION,
    MARKER_PARTITION,
    marked_batch,
    marker_error,
    marker_request,
)
from headrace.spark.sink.record_batches import BATCH_BYTES, ProducerId, encode

# A broker that restarts answers again within this time; after it the task fails and is retried.
RETRY_SECONDS = 120.0
ANSWER_SECONDS = 60.0
ABORT_SECONDS = 10.0
PAUSE_SECONDS = 0.1
# Retriable errors pass sooner: an earlier transaction that is ending, a moved coordinator.
REFUSED_PAUSE_SECONDS = 0.02
# Rows are collected up to this size, since rows for many partitions make small batches.
HELD_BYTES_MAX = 4 << 20
# The last version in which a producer itself adds partitions to its transaction (KIP-890).
VERSION_MAX = 3

T = TypeVar("T")


class SinkTransaction:
    """A producer that has fenced earlier ones; its transaction is aborted unless committed."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.sent = 0
        self._name = name
        self._added: set[TopicPartition] = set()
        self._held: dict[str, list[Any]] = {}
        self._held_bytes = 0
        self._is_open = False
        self._coordinators: dict[CoordinatorOf, BrokerAddress] = {}
        self._cluster = connection.cluster(ANSWER_SECONDS)
        settings = connection.settings
        try:
            timeout_ms = int(settings["transaction.timeout.ms"])
            given = self._ask_coordinator(
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms),
                InitProducerIdResponse,
            )
            codec = Codec[settings.get("compression.type", "none").upper()]
            level = settings.get("compression.level")
            self._producer = ProducerId(
                given.producer_id, given.producer_epoch, codec, int(level) if level else None
            )
        except BaseException:
            self._cluster.close()
            raise
        bytes_max = int(settings.get("batch.size", BATCH_BYTES))
        self._sender = BatchSender(self._cluster, self._producer, name, min(bytes_max, BATCH_BYTES))

    def marker(self, topic: str | None) -> int | None:
        """The batch that was last committed under this name, or None.

        `topic` is None if the rows name their topics.
        """
        answer = self._ask_coordinator(
            marker_request(self._name, topic),
            OffsetFetchResponse,
            marker_error,
            CoordinatorOf.GROUP,
            version_max=FETCH_ONE_VERSION,
        )
        return marked_batch(answer)

    def send(self, topic: str, rows: Any) -> None:
        """Add an Arrow batch; it may be sent later. Rows of one key keep their order."""
        self._is_open = True
        self._held.setdefault(topic, []).append(rows)
        self._held_bytes += rows.nbytes
        self.sent += rows.num_rows
        if self._held_bytes >= HELD_BYTES_MAX:
            self._flush()

    def commit(self, topic: str, batch: int) -> None:
        """Commit the records with the marker, which goes to this topic; durable on return."""
        self._flush()
        self._retrying(self._sender.settle)
        group = self._name
        self._ask_coordinator(
            AddOffsetsToTxnRequest(**self._identity(), group_id=group),
            AddOffsetsToTxnResponse,
        )
        marker = TxnOffsetCommitRequestPartition(
            partition_index=MARKER_PARTITION, committed_offset=batch, committed_metadata=""
        )
        self._ask_coordinator(
            TxnOffsetCommitRequest(
                **self._identity(),
                group_id=group,
                topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[marker])],
            ),
            TxnOffsetCommitResponse,
            lambda answer: answer.topics[0].partitions[0].error_code,
            CoordinatorOf.GROUP,
        )
        self._end(committed=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            if self._is_open and self._added:
                self._end(committed=False, retry_s=ABORT_SECONDS)
        except SinkError:
            # The next producer of this name aborts it, or its coordinator does at the timeout.
            pass
        finally:
            self._sender.close()
            self._cluster.close()

    def _flush(self) -> None:
        """Encode and send the collected rows; the last request may be unanswered on return."""
        for topic, batches in self._held.items():
            whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
            partitions = self._retrying(partial(self._sender.partitions, topic))
            keyless = self._retrying(partial(self._sender.keyless_partition, topic))
            for rows in whole:
                encoded = list(encode(rows, partitions, keyless, self._sender.bytes_max))
                self._add({(topic, each.partition) for each in encoded})
                for each in encoded:
                    self._retrying(partial(self._sender.put, topic, each))
        self._held.clear()
        self._held_bytes = 0

    def _add(self, partitions: set[TopicPartition]) -> None:
        """Add partitions to the transaction, before anything is sent to them."""
        new = sorted(partitions - self._added)
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in new:
            topics.setdefault(topic, []).append(partition)
        self._ask_coordinator(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._producer.id,
                v3_and_below_producer_epoch=self._producer.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                    for topic, numbers in topics.items()
                ],
            ),
            AddPartitionsToTxnResponse,
            _partitions_error,
        )
        self._added.update(new)

    def _end(self, *, committed: bool, retry_s: float = RETRY_SECONDS) -> None:
        self._ask_coordinator(
            EndTxnRequest(**self._identity(), committed=committed),
            EndTxnResponse,
            retry_s=retry_s,
        )
        self._is_open = False

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self._name,
            "producer_id": self._producer.id,
            "producer_epoch": self._producer.epoch,
        }

    def _ask_coordinator(
        self,
        request: Message,
        answer: type[AnswerT],
        code: Callable[[AnswerT], int] = attrgetter("error_code"),
        of: CoordinatorOf = CoordinatorOf.TRANSACTION,
        retry_s: float = RETRY_SECONDS,
        version_max: int = VERSION_MAX,
    ) -> AnswerT:
        """Ask the coordinator of this name, again while it is moving, loading or down."""

        def ask() -> AnswerT:
            # Looked up once, and again after any error.
            where = self._coordinators.pop(of, None) or self._cluster.coordinator(of, self._name)
            response = self._cluster.ask_broker(where, request, answer, version_max)
            if code(response):
                raise refused(code(response))
            self._coordinators[of] = where
            return response

        return self._retrying(ask, retry_s)

    def _retrying(self, attempt: Callable[[], T], retry_s: float = RETRY_SECONDS) -> T:
        """Retry while the broker is down or its error is retriable; then SinkError."""
        try:
            return retry(attempt, _pause_s, timeout_s=retry_s)
        except KafkaError as problem:
            raise _with_hint(problem, self._name) from problem
        except OSError as problem:
            raise SinkError(f"{self._name}: no broker answers: {problem}") from problem


def _pause_s(problem: Exception) -> float | None:
    if isinstance(problem, KafkaError):
        return REFUSED_PAUSE_SECONDS if problem.code.retriable else None
    return PAUSE_SECONDS if isinstance(problem, OSError) else None


def _partitions_error(answer: AddPartitionsToTxnResponse) -> int:
    codes = [
        result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]
    # If one partition is refused, the others are not attempted: find the one with the reason.
    reasons = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(filter(None, reasons), 0) or next(filter(None, codes), 0)


def _with_hint(problem: KafkaError, name: str) -> SinkError:
    fenced = (
        "another attempt of this task replaced it, or it took longer than "
        "kafka.transaction.timeout.ms; it has written nothing"
    )
    hints = {
        ErrorCode.PRODUCER_FENCED: fenced,
        ErrorCode.INVALID_PRODUCER_EPOCH: fenced,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: "kafka.transaction.timeout.ms must not be above the "
        "broker's transaction.max.timeout.ms",
        ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create it: headrace topic create",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the user needs the right to write to the topic and "
        "to read it, since the marker is an offset in it",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "the user needs the right to read groups that begin "
        "with headrace.sink",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs the right to write with "
        "transactional ids that begin with headrace.sink",
    }
    return SinkError(f"{name}: {problem}", hints.get(problem.code, ""))

"""One transaction of a sink's task, over the wire itself: records and the marker, or nothing.

Arrow batches become record batches without a step through Python objects, and beside the records a
transaction takes about ten short requests; a client library would first start its threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from headrace.client.wire.cluster import BrokerAddress, Cluster, CoordinatorOf, parse_servers
from headrace.client.wire.connection import AnswerT
from headrace.client.wire.errors import refused
from headrace.client.wire.security import Security
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
from headrace.protocol.schema import Message
from headrace.spark.errors import SinkError
from headrace.spark.sink.markers import (
    FETCH_ONE_VERSION,
    MARKED_PARTITION,
    marked,
    marker_error,
    marker_request,
)
from headrace.spark.sink.record_batches import BATCH_BYTES, Producing, build
from headrace.spark.sink.sending import Sending

# A broker that restarts answers again within this time; then the task fails and is tried anew.
PATIENCE_SECONDS = 120.0
ANSWER_SECONDS = 60.0
ABORT_SECONDS = 10.0
PAUSE_SECONDS = 0.1
# A refusal passes sooner: the markers of the transaction before, a coordinator that has moved.
REFUSED_PAUSE_SECONDS = 0.02
# So much is put together before it is sent: rows of many partitions make small batches.
HELD_BYTES = 4 << 20
# The last versions in which a producer says itself what joins its transaction (KIP-890).
OLD_VERSION = 3

T = TypeVar("T")


class SinkTransaction:
    """A fenced producer with one transaction; aborted at the end unless committed."""

    def __init__(self, settings: Mapping[str, str], name: str) -> None:
        self.sent = 0
        self._name = name
        self._added: set[tuple[str, int]] = set()
        self._held: dict[str, list[Any]] = {}
        self._held_bytes = 0
        self._is_open = False
        self._coordinators: dict[CoordinatorOf, BrokerAddress] = {}
        servers = parse_servers(str(settings["bootstrap.servers"]))
        self._cluster = Cluster(servers, Security(settings), ANSWER_SECONDS)
        try:
            timeout_ms = int(settings["transaction.timeout.ms"])
            given = self._coordinated(
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms),
                InitProducerIdResponse,
                lambda answer: answer.error_code,
            )
            codec = Codec[str(settings.get("compression.type", "none")).upper()]
            level = settings.get("compression.level")
            self._who = Producing(
                given.producer_id, given.producer_epoch, codec, int(level) if level else None
            )
        except BaseException:
            self._cluster.close()
            raise
        limit_bytes = int(settings.get("batch.size", BATCH_BYTES))
        self._sending = Sending(self._cluster, self._who, name, min(limit_bytes, BATCH_BYTES))

    def marker(self, topic: str | None) -> int | None:
        """The batch that was last committed under this name, or None.

        `topic` is the one that all rows go to, if there is one.
        """
        answer = self._coordinated(
            marker_request(self._name, topic),
            OffsetFetchResponse,
            marker_error,
            CoordinatorOf.GROUP,
            version_max=FETCH_ONE_VERSION,
        )
        return marked(answer)

    def send(self, topic: str, rows: Any) -> None:
        """Take an Arrow batch; it may be sent later, in the order of the rows of each key."""
        self._is_open = True
        self._held.setdefault(topic, []).append(rows)
        self._held_bytes += rows.nbytes
        self.sent += rows.num_rows
        if self._held_bytes >= HELD_BYTES:
            self._flush()

    def commit(self, topic: str, batch: int) -> None:
        """Commit the records with the marker, at a partition of a topic of theirs; durable."""
        self._flush()
        self._patiently(self._sending.settle)
        group = self._name
        self._coordinated(
            AddOffsetsToTxnRequest(**self._me(), group_id=group),
            AddOffsetsToTxnResponse,
            lambda answer: answer.error_code,
        )
        marker = TxnOffsetCommitRequestPartition(
            partition_index=MARKED_PARTITION, committed_offset=batch, committed_metadata=""
        )
        self._coordinated(
            TxnOffsetCommitRequest(
                **self._me(),
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._is_open and self._added:
                self._end(committed=False, patience_s=ABORT_SECONDS)
        except SinkError:
            # Whoever comes next under this name ends it, or the coordinator does in time.
            pass
        finally:
            self._sending.close()
            self._cluster.close()

    def _flush(self) -> None:
        """Encode what is held and send it; the last of it may be on its way on return."""
        for topic, batches in self._held.items():
            whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
            partitions = self._patiently(partial(self._sending.partitions, topic))
            without_key = self._patiently(partial(self._sending.turn, topic))
            for rows in whole:
                built = list(build(rows, partitions, without_key, self._sending.limit_bytes))
                self._add({(topic, each.partition) for each in built})
                for each in built:
                    self._patiently(partial(self._sending.put, topic, each))
        self._held.clear()
        self._held_bytes = 0

    def _add(self, places: set[tuple[str, int]]) -> None:
        """Let partitions join the transaction, before anything is sent to them."""
        new = sorted(places - self._added)
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in new:
            topics.setdefault(topic, []).append(partition)
        self._coordinated(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._who.producer_id,
                v3_and_below_producer_epoch=self._who.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                    for topic, partitions in topics.items()
                ],
            ),
            AddPartitionsToTxnResponse,
            _partitions_error,
        )
        self._added.update(new)

    def _end(self, *, committed: bool, patience_s: float = PATIENCE_SECONDS) -> None:
        self._coordinated(
            EndTxnRequest(**self._me(), committed=committed),
            EndTxnResponse,
            lambda answer: answer.error_code,
            patience_s=patience_s,
        )
        self._is_open = False

    def _me(self) -> dict[str, Any]:
        return {
            "transactional_id": self._name,
            "producer_id": self._who.producer_id,
            "producer_epoch": self._who.epoch,
        }

    def _coordinated(
        self,
        request: Message,
        answer: type[AnswerT],
        code: Callable[[AnswerT], int],
        of: CoordinatorOf = CoordinatorOf.TRANSACTION,
        patience_s: float = PATIENCE_SECONDS,
        version_max: int = OLD_VERSION,
    ) -> AnswerT:
        """Ask the coordinator of this name, again while it is moving, loading or away."""

        def ask() -> AnswerT:
            # Looked for once, and anew after whatever went wrong.
            where = self._coordinators.pop(of, None) or self._cluster.coordinator(of, self._name)
            said = self._cluster.ask_broker(where, request, answer, version_max)
            if code(said):
                raise refused(code(said))
            self._coordinators[of] = where
            return said

        return self._patiently(ask, patience_s)

    def _patiently(self, attempt: Callable[[], T], patience_s: float = PATIENCE_SECONDS) -> T:
        """Try again while the broker is away; a refusal that stays is a SinkError."""
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                return attempt()
            except KafkaError as problem:
                if not problem.code.retriable or time.monotonic() > deadline_s:
                    raise _explained(problem, self._name) from problem
                pause_s = REFUSED_PAUSE_SECONDS
            except OSError as problem:
                if time.monotonic() > deadline_s:
                    raise SinkError(f"{self._name}: no broker answers: {problem}") from problem
                pause_s = PAUSE_SECONDS
            time.sleep(pause_s)


def _partitions_error(answer: AddPartitionsToTxnResponse) -> int:
    codes = [
        result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]
    # Where one is refused, the others are not attempted: the one says why.
    telling = [code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(filter(None, telling), 0) or next(filter(None, codes), 0)


def _explained(problem: KafkaError, name: str) -> SinkError:
    fenced = (
        "another attempt of this task took over, or it took longer than "
        "kafka.transaction.timeout.ms; this one has written nothing"
    )
    hints = {
        ErrorCode.PRODUCER_FENCED: fenced,
        ErrorCode.INVALID_PRODUCER_EPOCH: fenced,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: "kafka.transaction.timeout.ms must not be above the "
        "broker's transaction.max.timeout.ms",
        ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "headrace topic create makes a topic",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the user needs the right to write to the topic and "
        "to read it, since the marker is an offset in it",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "the user needs the right to read groups that begin "
        "with headrace.sink",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs the right to write with "
        "transactional ids that begin with headrace.sink",
    }
    return SinkError(f"{name}: {problem}", hints.get(problem.code, ""))

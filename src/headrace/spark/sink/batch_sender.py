"""Sends record batches to the leaders of their partitions, each once and in order."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from headrace.client.wire.cluster import BrokerAddress, ClusterClient
from headrace.client.wire.connection import BrokerConnection
from headrace.client.wire.errors import refused
from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import SinkError
from headrace.spark.sink.record_batches import (
    SEQUENCE_MASK,
    EncodedRecords,
    ProducerId,
    halves,
    seal_batch,
)

ALL_REPLICAS = -1
# A missing topic is looked up this often, with the caller's pauses between.
LOOKUPS_MAX = 30
TIMEOUT_MS = 30_000
REQUEST_BYTES_MAX = 4 << 20
# The last version in which partitions do not join a transaction by being produced to (KIP-890).
VERSION_MAX = 11


class _Sent(NamedTuple):
    """A request without an answer yet: its connection, and the batches in it."""

    wire: BrokerConnection
    request: ProduceRequest
    batches: dict[TopicPartition, bytearray]


class BatchSender:
    """Sends one request at a time to each leader, and never one partition in two requests.

    A batch without an acknowledgement is sent again with the same sequence number, by which the
    broker recognises it: no batch is written twice or out of order. A method that raises may be
    called again.
    """

    def __init__(
        self, cluster: ClusterClient, producer: ProducerId, name: str, bytes_max: int
    ) -> None:
        self.bytes_max = bytes_max
        """How large batches may be; lowered when a topic refuses one as too large."""
        self._cluster = cluster
        self._producer = producer
        self._name = name
        self._sequences: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, BrokerAddress] = {}
        self._wires: dict[BrokerAddress, BrokerConnection] = {}
        self._keyless_turns: dict[str, int] = {}
        self._failed_lookups = 0
        # Batches to send next; requests that were sent; batches to send again.
        self._next: dict[TopicPartition, bytearray] = {}
        self._next_bytes = 0
        self._sent: list[_Sent] = []
        self._again: dict[TopicPartition, bytearray] = {}
        # The second halves of batches that were too large, to be sent after the first.
        self._rest: dict[TopicPartition, list[bytearray]] = {}

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        known = [number for name, number in self._leaders if name == topic]
        if not known:
            self._find_leaders(topic)
            known = [number for name, number in self._leaders if name == topic]
        return len(known)

    def keyless_partition(self, topic: str) -> int:
        """The partition for records without a key; the next one with each call."""
        count = self.partitions(topic)
        self._keyless_turns[topic] = self._keyless_turns.get(topic, random.randrange(count)) + 1
        return self._keyless_turns[topic] % count

    def put(self, topic: str, encoded: EncodedRecords) -> None:
        """Give a batch its sequence number and add it to the next request."""
        tp = (topic, encoded.partition)
        if tp in self._next or self._next_bytes >= REQUEST_BYTES_MAX:
            self.flush()
        sequence = self._sequences.get(tp, 0)
        batch = seal_batch(encoded, self._producer, sequence, round(time.time() * 1000))
        self._sequences[tp] = (sequence + encoded.count) & SEQUENCE_MASK
        self._next[tp] = batch
        self._next_bytes += len(batch)

    def flush(self) -> None:
        """Send the next request, after all earlier ones are acknowledged."""
        self._acknowledge()
        self._send(self._next)
        self._next, self._next_bytes = {}, 0

    def settle(self) -> None:
        """Send everything, and wait until it is acknowledged."""
        if self._next:
            self.flush()
        self._acknowledge()

    def close(self) -> None:
        """Close the connections."""
        for wire in self._wires.values():
            wire.close()

    def _acknowledge(self) -> None:
        """Wait for all responses; batches with a retriable error are sent again."""
        while self._sent or self._again:
            again, self._again = self._again, {}
            try:
                problem = self._send(again)
            except BaseException:
                self._again.update(again)
                raise
            while self._sent:
                problem = self._receive(self._sent.pop()) or problem
            if problem is not None:
                # The leader has moved or is down: the caller pauses and calls again.
                self._leaders.clear()
                raise problem

    def _receive(self, sent: _Sent) -> Exception | None:
        """Receive a response; returns a retriable error if it has one."""
        try:
            answer = sent.wire.receive(sent.request, ProduceResponse, VERSION_MAX)
        except OSError as problem:
            sent.wire.close()
            self._again.update(sent.batches)
            return problem
        retriable: Exception | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                tp = (topic.name, row.index)
                if row.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    if self._rest.get(tp):
                        self._again[tp] = self._rest[tp].pop(0)
                    continue
                error = refused(row.error_code, row.error_message)
                if error.code is ErrorCode.MESSAGE_TOO_LARGE and self._halve(sent.batches, tp):
                    continue
                if not error.code.retriable:
                    raise error
                self._again[tp] = sent.batches[tp]
                retriable = error
        return retriable

    def _halve(self, sent: dict[TopicPartition, bytearray], tp: TopicPartition) -> bool:
        """Send a batch again as two with the same sequence numbers; False for a single record."""
        parts = halves(sent[tp], self._producer)
        if len(parts) < 2:
            return False
        self.bytes_max = min(self.bytes_max, len(parts[0]))
        self._again[tp] = parts[0]
        self._rest.setdefault(tp, []).insert(0, parts[1])
        return True

    def _send(self, batches: dict[TopicPartition, bytearray]) -> Exception | None:
        """Send batches to their leaders; returns the error if some have to be sent again.

        Nothing is sent if a leader is unknown.
        """
        lost: Exception | None = None
        by_leader: dict[BrokerAddress, dict[TopicPartition, bytearray]] = {}
        for tp, batch in batches.items():
            if tp not in self._leaders:
                self._find_leaders(tp[0])
            by_leader.setdefault(self._leaders[tp], {})[tp] = batch
        for leader, led in by_leader.items():
            topics: dict[str, list[PartitionProduceData]] = {}
            for (topic, partition), batch in led.items():
                data = PartitionProduceData(index=partition, records=memoryview(batch))
                topics.setdefault(topic, []).append(data)
            request = ProduceRequest(
                transactional_id=self._name,
                acks=ALL_REPLICAS,
                timeout_ms=TIMEOUT_MS,
                topic_data=[
                    TopicProduceData(name=topic, partition_data=data)
                    for topic, data in topics.items()
                ],
            )
            try:
                wire = self._wire(leader)
                wire.send(request, VERSION_MAX)
            except OSError as problem:
                # Other requests may be sent already; their responses are received first.
                self._again.update(led)
                lost = problem
            else:
                self._sent.append(_Sent(wire, request, led))
        return lost

    def _find_leaders(self, topic: str) -> None:
        """Look up the leaders of a topic's partitions."""
        found = self._cluster.leaders([topic])
        if not found:
            self._failed_lookups += 1
            if self._failed_lookups > LOOKUPS_MAX:
                raise SinkError(f"there is no topic {topic!r}", f"headrace topic create {topic}")
            # This makes a broker with auto.create.topics.enable create the topic.
            asked = [MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
            self._cluster.ask_broker(self._cluster.brokers()[0], request, MetadataResponse)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for tp, leader in found.items():
            if leader is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            self._leaders[tp] = leader

    def _wire(self, leader: BrokerAddress) -> BrokerConnection:
        wire = self._wires.get(leader)
        if wire is None or wire.is_closed:
            wire = self._wires[leader] = self._cluster.connect(leader.host, leader.port)
        return wire

"""Sending record batches to the leaders of their partitions, each once and in order."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from headrace.client.wire.cluster import BrokerAddress, Cluster
from headrace.client.wire.connection import Wire
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
from headrace.spark.sink.record_batches import SEQUENCE_MASK, Built, Producing, finish, halves

ALL_REPLICAS = -1
# So often a topic that is missing is looked for, with the caller's pauses between.
MISSES_MAX = 30
TIMEOUT_MS = 30_000
REQUEST_BYTES = 4 << 20
# The last version in which partitions do not join a transaction by being produced to (KIP-890).
VERSION_MAX = 11


class _Asked(NamedTuple):
    """A request on its way: the connection, the request and what is in it."""

    wire: Wire
    request: ProduceRequest
    places: dict[TopicPartition, bytearray]


class Sending:
    """Batches on their way: one request for each leader, and no partition in two of them.

    What is not acknowledged is sent again with the same numbers, which the broker knows it by: no
    batch is written twice or out of its turn. A method that raises may be called again.
    """

    def __init__(self, cluster: Cluster, who: Producing, name: str, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        """How large batches should be: less after a topic has not taken one."""
        self._cluster = cluster
        self._who = who
        self._name = name
        self._sequences: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, BrokerAddress] = {}
        self._wires: dict[BrokerAddress, Wire] = {}
        self._turns: dict[str, int] = {}
        self._misses = 0
        # Not yet sent, then sent and not yet acknowledged.
        self._next: dict[TopicPartition, bytearray] = {}
        self._next_bytes = 0
        self._asked: list[_Asked] = []
        self._again: dict[TopicPartition, bytearray] = {}
        # What comes after a batch that is sent again in parts.
        self._rest: dict[TopicPartition, list[bytearray]] = {}

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        known = [number for name, number in self._leaders if name == topic]
        if not known:
            self._look(topic)
            known = [number for name, number in self._leaders if name == topic]
        return len(known)

    def turn(self, topic: str) -> int:
        """The partition for records without a key, another one each time."""
        count = self.partitions(topic)
        self._turns[topic] = self._turns.get(topic, random.randrange(count)) + 1
        return self._turns[topic] % count

    def put(self, topic: str, built: Built) -> None:
        """Give a batch its number and let it go with the next request."""
        place = (topic, built.partition)
        if place in self._next or self._next_bytes >= REQUEST_BYTES:
            self.flush()
        sequence = self._sequences.get(place, 0)
        batch = finish(built, self._who, sequence, round(time.time() * 1000))
        self._sequences[place] = (sequence + built.count) & SEQUENCE_MASK
        self._next[place] = batch
        self._next_bytes += len(batch)

    def flush(self) -> None:
        """Send what waits, after all that was sent before is acknowledged."""
        self._acknowledge()
        self._ask(self._next)
        self._next, self._next_bytes = {}, 0

    def settle(self) -> None:
        """Send all, and wait until it is acknowledged."""
        if self._next:
            self.flush()
        self._acknowledge()

    def close(self) -> None:
        """Hang up."""
        for wire in self._wires.values():
            wire.close()

    def _acknowledge(self) -> None:
        """Wait for all answers; what was refused for a moment is sent again until it is taken."""
        while self._asked or self._again:
            again, self._again = self._again, {}
            try:
                problem = self._ask(again)
            except BaseException:
                self._again.update(again)
                raise
            while self._asked:
                problem = self._hear(self._asked.pop()) or problem
            if problem is not None:
                # The leader has moved or is away: the caller pauses and calls again.
                self._leaders.clear()
                raise problem

    def _hear(self, asked: _Asked) -> Exception | None:
        """Take an answer; what it says against a batch, if trying again may help."""
        try:
            answer = asked.wire.receive(asked.request, ProduceResponse, VERSION_MAX)
        except OSError as problem:
            asked.wire.close()
            self._again.update(asked.places)
            return problem
        passing: Exception | None = None
        for topic in answer.responses:
            for row in topic.partition_responses:
                place = (topic.name, row.index)
                if row.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    if self._rest.get(place):
                        self._again[place] = self._rest[place].pop(0)
                    continue
                error = refused(row.error_code, row.error_message)
                if error.code is ErrorCode.MESSAGE_TOO_LARGE and self._halve(asked.places, place):
                    continue
                if not error.code.retriable:
                    raise error
                self._again[place] = asked.places[place]
                passing = error
        return passing

    def _halve(self, sent: dict[TopicPartition, bytearray], place: TopicPartition) -> bool:
        """Let a batch go again in two parts, with the same numbers; not if it is one record."""
        parts = halves(sent[place], self._who)
        if len(parts) < 2:
            return False
        self.limit_bytes = min(self.limit_bytes, len(parts[0]))
        self._again[place] = parts[0]
        self._rest.setdefault(place, []).insert(0, parts[1])
        return True

    def _ask(self, batches: dict[TopicPartition, bytearray]) -> Exception | None:
        """Send batches to their leaders, none if one is not known; why some are to go again."""
        lost: Exception | None = None
        by_leader: dict[BrokerAddress, dict[TopicPartition, bytearray]] = {}
        for place, batch in batches.items():
            if place not in self._leaders:
                self._look(place[0])
            by_leader.setdefault(self._leaders[place], {})[place] = batch
        for leader, places in by_leader.items():
            topics: dict[str, list[PartitionProduceData]] = {}
            for (topic, partition), batch in places.items():
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
                # Others may be on their way already, and are heard before these go again.
                self._again.update(places)
                lost = problem
            else:
                self._asked.append(_Asked(wire, request, places))
        return lost

    def _look(self, topic: str) -> None:
        """Ask who leads the partitions of a topic."""
        found = self._cluster.leaders([topic])
        if not found:
            self._misses += 1
            if self._misses > MISSES_MAX:
                raise SinkError(f"there is no topic {topic!r}", f"headrace topic create {topic}")
            # A broker that makes topics by itself does so when it is asked for one like this.
            asked = [MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
            self._cluster.ask_broker(self._cluster.brokers()[0], request, MetadataResponse)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for place, leader in found.items():
            if leader is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
            self._leaders[place] = leader

    def _wire(self, leader: BrokerAddress) -> Wire:
        wire = self._wires.get(leader)
        if wire is None or wire.is_closed:
            wire = self._wires[leader] = self._cluster.connect(leader.host, leader.port)
        return wire

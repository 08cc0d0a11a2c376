"""Requests to the leaders of many partitions at once: offsets by time, and records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import groupby
from typing import TypeVar

from headrace.client.wire.cluster import BrokerAddress, ClusterClient
from headrace.client.wire.committed import CommittedRecords, read_committed_records
from headrace.client.wire.errors import GONE
from headrace.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

EARLIEST = -2
LATEST = -1
CONSUMER = -1
# The last version with topic names instead of ids.
FETCH_VERSION = 12
ANSWER_BYTES_MAX = 8 << 20
# How often leaders that have moved are looked up before a partition is left out.
ATTEMPTS_MAX = 3
PAUSE_SECONDS = 0.1
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)

_log = logging.getLogger("headrace.client")

T = TypeVar("T")
Answers = Iterator[tuple[TopicPartition, int, T]]


class Isolation(IntEnum):
    """Whether records of open transactions count."""

    UNCOMMITTED = 0
    COMMITTED = 1


class Leaders:
    """The leaders of some partitions; those in `gone` do not exist, or no longer."""

    def __init__(self, cluster: ClusterClient, partitions: Iterable[TopicPartition]) -> None:
        self._cluster = cluster
        self._partitions = set(partitions)
        self.gone: set[TopicPartition] = set()
        self._leaders: dict[TopicPartition, BrokerAddress] = {}
        # Each of them has cost a whole timeout, so none is asked again.
        self._silent: set[BrokerAddress] = set()
        self._look()

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        time_ms: int,
        isolation: Isolation = Isolation.UNCOMMITTED,
    ) -> dict[TopicPartition, int]:
        """The first offset at that time or later (-1 if there is none), or at EARLIEST or LATEST.

        A partition whose leader does not answer is left out.
        """

        def ask(leader: BrokerAddress, asked: list[TopicPartition]) -> Answers[int]:
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=time_ms)
                        for _, number in group
                    ],
                )
                for topic, group in groupby(asked, key=lambda partition: partition[0])
            ]
            request = ListOffsetsRequest(
                replica_id=CONSUMER, isolation_level=isolation, topics=topics
            )
            answer = self._cluster.ask_broker(leader, request, ListOffsetsResponse)
            for topic in answer.topics:
                for found in topic.partitions:
                    yield (topic.name, found.partition_index), found.error_code, found.offset

        return self._ask_all(partitions, ask)

    def read(
        self,
        offsets: Mapping[TopicPartition, int],
        bytes_each: int,
        records_each: int,
        isolation: Isolation = Isolation.COMMITTED,
    ) -> dict[TopicPartition, CommittedRecords]:
        """Records from an offset on in each partition: some, not necessarily all.

        A partition whose leader does not answer is left out.
        A partition whose first batch is larger than `bytes_each` may be left out beside others;
        asked for alone, it is not.
        """

        def ask(leader: BrokerAddress, asked: list[TopicPartition]) -> Answers[CommittedRecords]:
            topics = [
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition[1],
                            fetch_offset=offsets[partition],
                            partition_max_bytes=bytes_each,
                        )
                        for partition in group
                    ],
                )
                for topic, group in groupby(asked, key=lambda partition: partition[0])
            ]
            request = FetchRequest(
                max_bytes=ANSWER_BYTES_MAX, isolation_level=isolation, topics=topics
            )
            answer = self._cluster.ask_broker(leader, request, FetchResponse, FETCH_VERSION)
            for topic in answer.responses:
                for data in topic.partitions:
                    partition = (topic.topic, data.partition_index)
                    if data.error_code or data.records:
                        found = read_committed_records(data, offsets[partition], records_each)
                        yield partition, data.error_code, found

        return self._ask_all(offsets, ask)

    def _ask_all(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[BrokerAddress, list[TopicPartition]], Answers[T]],
    ) -> dict[TopicPartition, T]:
        """Ask each leader for its partitions, and again where leaders have moved or are down.

        OSError if no broker of the cluster answers.
        """
        found: dict[TopicPartition, T] = {}
        left = set(partitions)
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                time.sleep(PAUSE_SECONDS)
                try:
                    self._look()
                except OSError:
                    if not found:
                        raise
                    break
            # A partition without a leader may have one in a moment.
            moved: set[TopicPartition] = {
                partition for partition in left - self.gone if not self._is_led(partition)
            }
            for leader, asked in self._by_leader(left):
                try:
                    answers = list(ask(leader, asked))
                except OSError as problem:
                    _log.debug("broker %s does not answer: %s", leader, problem)
                    if isinstance(problem, TimeoutError):
                        self._silent.add(leader)
                    moved.update(asked)
                    continue
                for partition, code, answer in answers:
                    if not code:
                        found[partition] = answer
                    elif code in GONE:
                        self.gone.add(partition)
                    elif code in _MOVED:
                        moved.add(partition)
            if not moved:
                break
            left = moved
        return found

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> Iterator[tuple[BrokerAddress, list[TopicPartition]]]:
        led: dict[BrokerAddress, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            if self._is_led(partition):
                led.setdefault(self._leaders[partition], []).append(partition)
        yield from led.items()

    def _is_led(self, partition: TopicPartition) -> bool:
        return partition in self._leaders and self._leaders[partition] not in self._silent

    def _look(self) -> None:
        if not self._partitions:
            return
        brokers = {broker.node_id: broker for broker in self._cluster.brokers()}
        self._leaders.clear()
        known: set[TopicPartition] = set()
        unsure: set[str] = set()
        for topic in self._cluster.topics(sorted({topic for topic, _ in self._partitions})):
            if topic.error_code and topic.error_code not in GONE:
                unsure.add(topic.name or "")
            for row in topic.partitions:
                partition = (topic.name or "", row.partition_index)
                known.add(partition)
                if row.leader_id in brokers:
                    self._leaders[partition] = brokers[row.leader_id]
        self.gone = {
            partition for partition in self._partitions - known if partition[0] not in unsure
        }

"""Leaders of many partitions at once, of which some are down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.client.wire.cluster import BrokerAddress, ClusterClient
from headrace.client.wire.leaders import LATEST, Leaders
from headrace.client.wire.security import Security
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.api.metadata import MetadataResponsePartition, MetadataResponseTopic

BROKERS = [BrokerAddress(1, "one", 9092), BrokerAddress(2, "two", 9092)]
PARTITIONS = [("orders", 0), ("orders", 1)]


class TwoBrokers(ClusterClient):
    """Broker 1 leads partition 0 and answers 7; broker 2 leads partition 1 and fails."""

    def __init__(self, failure: OSError) -> None:
        super().__init__([], Security())
        self.asked: list[int] = []
        self.leader_of_1 = 2
        self.is_up = True
        self._failure = failure

    def brokers(self) -> list[BrokerAddress]:
        if not self.is_up:
            raise ConnectionRefusedError
        return BROKERS

    def topics(self, names: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        rows = [
            MetadataResponsePartition(partition_index=0, leader_id=1),
            MetadataResponsePartition(partition_index=1, leader_id=self.leader_of_1),
        ]
        return [MetadataResponseTopic(name=name, partitions=rows) for name in names or ()]

    def ask_broker(self, broker: BrokerAddress, request: Any, *_rest: Any) -> Any:
        self.asked.append(broker.node_id)
        if broker.node_id == 2:
            raise self._failure
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=7)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)


def test_a_leader_that_is_down_loses_only_its_own_partitions() -> None:
    cluster = TwoBrokers(ConnectionRefusedError())
    leaders = Leaders(cluster, PARTITIONS)
    assert leaders.offsets(PARTITIONS, LATEST) == {("orders", 0): 7}
    assert leaders.offsets([("orders", 1)], LATEST) == {}
    assert not leaders.gone


def test_a_partition_whose_leader_has_died_is_asked_of_the_new_one() -> None:
    cluster = TwoBrokers(ConnectionResetError())
    leaders = Leaders(cluster, PARTITIONS)
    cluster.leader_of_1 = 1
    assert leaders.offsets(PARTITIONS, LATEST) == {("orders", 0): 7, ("orders", 1): 7}


def test_a_leader_that_timed_out_is_not_waited_for_again() -> None:
    cluster = TwoBrokers(TimeoutError())
    leaders = Leaders(cluster, PARTITIONS)
    for _ in range(2):
        assert leaders.offsets(PARTITIONS, LATEST) == {("orders", 0): 7}
    assert cluster.asked.count(2) == 1


def test_answers_are_kept_when_new_leaders_cannot_be_looked_up() -> None:
    cluster = TwoBrokers(ConnectionRefusedError())
    leaders = Leaders(cluster, PARTITIONS)
    cluster.is_up = False
    assert leaders.offsets(PARTITIONS, LATEST) == {("orders", 0): 7}
    with pytest.raises(ConnectionRefusedError):
        leaders.offsets([("orders", 1)], LATEST)

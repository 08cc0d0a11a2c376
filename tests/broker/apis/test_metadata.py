"""Metadata: brokers, topics and their leaders."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headrace.protocol.errors import ErrorCode

NOT_ASKED = -(2**31)


def by_name(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_brokers_and_topics(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        made = await asker.create("orders", 2)
        answer = await asker.ask(by_name("orders"), MetadataResponse, version)
        (broker,) = answer.brokers
        (topic,) = answer.topics
        assert (broker.node_id, broker.host) == (7, "127.0.0.1")
        assert broker.port == asker.node.cluster.brokers()[0].port > 0
        assert (topic.error_code, topic.name) == (0, "orders")
        for index, partition in enumerate(topic.partitions):
            assert partition.partition_index == index
            assert partition.error_code == 0
            assert partition.leader_id == 7
            assert partition.replica_nodes == partition.isr_nodes == [7]
            assert partition.offline_replicas == []
            assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert len(topic.partitions) == 2
        if version >= 1:
            assert answer.controller_id == 7
            assert broker.rack == "r1"
        if version >= 2:
            assert answer.cluster_id == asker.node.catalog.cluster_id
        if version >= 10:
            assert topic.topic_id == made.id

    with_broker(tmp_path, scenario, {"node.id": 7, "broker.rack": "r1"})


def test_all_topics_are_asked_for_with_null_or_in_version_0_with_nothing(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a")
        await asker.create("b")
        everything = await asker.ask(MetadataRequest(topics=None), MetadataResponse, 1)
        oldest = await asker.ask(MetadataRequest(topics=[]), MetadataResponse, 0)
        nothing = await asker.ask(MetadataRequest(topics=[]), MetadataResponse, 1)
        assert [topic.name for topic in everything.topics] == ["a", "b"]
        assert [topic.name for topic in oldest.topics] == ["a", "b"]
        assert nothing.topics == []

    with_broker(tmp_path, scenario)


def test_an_unknown_topic_is_made_when_client_and_broker_allow_it(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        answer = await asker.ask(by_name("new", create=True), MetadataResponse)
        (topic,) = answer.topics
        assert topic.error_code == 0
        assert [partition.leader_id for partition in topic.partitions] == [1, 1, 1]
        assert asker.node.catalog.topics["new"].id == topic.topic_id
        oldest = await asker.ask(by_name("old"), MetadataResponse, 0)
        assert len(oldest.topics[0].partitions) == 3

    with_broker(tmp_path, scenario, {"num.partitions": 3})


def test_many_clients_may_ask_for_the_same_new_topic_at_once(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        answers = await asyncio.gather(
            *(asker.ask(by_name("new", create=True), MetadataResponse) for _ in range(20))
        )
        assert {answer.topics[0].error_code for answer in answers} == {0}
        assert len({answer.topics[0].topic_id for answer in answers}) == 1

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("settings", "create"), [({"auto.create.topics.enable": False}, True), ({}, False)]
)
def test_an_unknown_topic_stays_unknown_when_one_side_does_not_allow_it(
    tmp_path: Path, settings: dict[str, object], create: bool
) -> None:
    async def scenario(asker: Asker) -> None:
        answer = await asker.ask(by_name("new", create=create), MetadataResponse)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.topics[0].name == "new"
        assert not asker.node.catalog.topics

    with_broker(tmp_path, scenario, settings)


def test_names_that_cannot_be_are_refused_and_the_brokers_own_not_made(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a.b")
        for create in (True, False):
            request = by_name("bad name", "__consumer_offsets", create=create)
            answer = await asker.ask(request, MetadataResponse)
            assert [topic.error_code for topic in answer.topics] == [
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
        collision = await asker.ask(by_name("a_b", create=True), MetadataResponse)
        assert collision.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    with_broker(tmp_path, scenario)


def test_topics_are_found_by_id(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        made = await asker.create("t")
        unknown = os.urandom(16)
        wanted = [
            MetadataRequestTopic(topic_id=made.id, name=None),
            MetadataRequestTopic(topic_id=unknown, name=None),
            MetadataRequestTopic(name=None),
        ]
        answer = await asker.ask(MetadataRequest(topics=wanted), MetadataResponse, 12)
        assert [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics] == [
            (0, "t", made.id),
            (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
            (ErrorCode.INVALID_REQUEST, None, bytes(16)),
        ]
        too_early = await asker.ask(MetadataRequest(topics=wanted), MetadataResponse, 10)
        assert {topic.error_code for topic in too_early.topics} == {ErrorCode.INVALID_REQUEST}

    with_broker(tmp_path, scenario)


def test_authorized_operations_are_told_when_asked_for(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        request = by_name("t", "missing")
        silent = await asker.ask(request, MetadataResponse, 8)
        assert silent.cluster_authorized_operations == NOT_ASKED
        assert silent.topics[0].topic_authorized_operations == NOT_ASKED
        request.include_cluster_authorized_operations = True
        request.include_topic_authorized_operations = True
        told = await asker.ask(request, MetadataResponse, 8)
        assert told.cluster_authorized_operations == 0b1_1111_1010_0000
        assert told.topics[0].topic_authorized_operations == 0b1101_1111_1000
        assert told.topics[1].topic_authorized_operations == NOT_ASKED

    with_broker(tmp_path, scenario)


def test_a_partition_on_a_failed_disk_has_no_leader(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        asker.node.fail_log_dir(partition.log.dir, OSError("broken"))
        answer = await asker.ask(by_name("t"), MetadataResponse)
        (told,) = answer.topics[0].partitions
        assert told.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (told.leader_id, told.replica_nodes, told.offline_replicas) == (-1, [1], [1])

    with_broker(tmp_path, scenario)

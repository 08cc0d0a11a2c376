"""CreateTopics: what is made, what is refused, what is told of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.config import TOPIC_ROWS, Source
from headrace.protocol.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.errors import ErrorCode


def wish(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> CreatableTopic:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in config.items()
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
    )


@pytest.mark.parametrize("version", range(8))
def test_every_version_makes_a_topic(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        request = CreateTopicsRequest(topics=[wish("t", 3, retention_ms="5")])
        (result,) = (await asker.ask(request, CreateTopicsResponse, version)).topics
        assert (result.name, result.error_code) == ("t", 0)
        made = asker.node.catalog.topics["t"]
        assert made.partitions == 3
        assert made.config == {"retention.ms": "5"}
        assert all(asker.node.partitions.get("t", index) for index in range(3))
        assert (tmp_path / "t-2").is_dir()
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {config.name: config for config in result.configs or ()}
            assert set(configs) == {row.name for row in TOPIC_ROWS}
            assert configs["retention.ms"].value == "5"
            assert configs["retention.ms"].config_source == Source.TOPIC
            assert configs["segment.bytes"].config_source == Source.DEFAULT
        if version >= 7:
            assert result.topic_id == made.id

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("version", range(8))
def test_minus_one_asks_for_the_defaults_at_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        request = CreateTopicsRequest(topics=[wish("t", -1, -1)])
        (result,) = (await asker.ask(request, CreateTopicsResponse, version)).topics
        assert result.error_code == ErrorCode.NONE
        made = asker.node.catalog.topics["t"]
        assert made.partitions == 4

    with_broker(tmp_path, scenario, {"num.partitions": 4})


def test_each_topic_succeeds_or_fails_for_itself(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("there")
        request = CreateTopicsRequest(
            topics=[
                wish("good"),
                wish("there"),
                wish("bad name"),
                wish("none", 0),
                wish("wide", 1, 3),
                wish("odd", cleanup_policy="shred"),
                wish("twice"),
                wish("twice"),
            ]
        )
        results = (await asker.ask(request, CreateTopicsResponse)).topics
        assert {result.name: result.error_code for result in results} == {
            "good": ErrorCode.NONE,
            "there": ErrorCode.TOPIC_ALREADY_EXISTS,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "none": ErrorCode.INVALID_PARTITIONS,
            "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
            "odd": ErrorCode.INVALID_CONFIG,
            "twice": ErrorCode.INVALID_REQUEST,
        }
        assert len(results) == 7
        messages = {result.name: result.error_message for result in results}
        assert messages["there"] == "Topic 'there' already exists."
        assert "must be a list of one or more of delete, compact" in (messages["odd"] or "")
        assert set(asker.node.catalog.topics) == {"there", "good"}

    with_broker(tmp_path, scenario)


def test_a_manual_assignment_must_be_to_this_node_and_unambiguous(tmp_path: Path) -> None:
    def assigned(name: str, *brokers: tuple[int, int]) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=[broker])
                for index, broker in brokers
            ],
        )

    async def scenario(asker: Asker) -> None:
        request = CreateTopicsRequest(
            topics=[
                assigned("good", (0, 1), (1, 1)),
                assigned("other", (0, 2)),
                assigned("doubled", (0, 1), (0, 1)),
            ]
        )
        results = (await asker.ask(request, CreateTopicsResponse)).topics
        assert [result.error_code for result in results] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ]
        assert asker.node.catalog.topics["good"].partitions == 2

    with_broker(tmp_path, scenario)


def test_validation_alone_makes_nothing(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        request = CreateTopicsRequest(topics=[wish("t", 2), wish("bad name")], validate_only=True)
        good, bad = (await asker.ask(request, CreateTopicsResponse)).topics
        assert (good.error_code, good.num_partitions, good.topic_id) == (0, 2, bytes(16))
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert not asker.node.catalog.topics
        assert not list(tmp_path.glob("t-*"))

    with_broker(tmp_path, scenario)


def test_of_many_who_make_the_same_topic_at_once_one_succeeds(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        answers = await asyncio.gather(
            *(
                asker.ask(CreateTopicsRequest(topics=[wish("t", 2)]), CreateTopicsResponse)
                for _ in range(10)
            )
        )
        codes = sorted(answer.topics[0].error_code for answer in answers)
        assert codes == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 9

    with_broker(tmp_path, scenario)

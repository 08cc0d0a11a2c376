"""CreatePartitions: topics grow."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.protocol.errors import ErrorCode


def grow(name: str, count: int, *assignments: int) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=[each]) for each in assignments] or None,
    )


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_the_answer_lists_it(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        made = await asker.create("t", 1)
        await asker.produce("t", 0, b"kept")
        request = CreatePartitionsRequest(topics=[grow("t", 3)])
        answer = await asker.ask(request, CreatePartitionsResponse, version)
        assert [(result.name, result.error_code) for result in answer.results] == [("t", 0)]
        assert asker.node.catalog.topics["t"].partitions == 3
        assert asker.node.catalog.topics["t"].id == made.id
        ends = [asker.node.partitions.get("t", index) for index in range(3)]
        assert [each.log.end_offset for each in ends if each is not None] == [1, 0, 0]

    with_broker(tmp_path, scenario)


def test_each_topic_succeeds_or_fails_for_itself(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        for name in ("good", "same", "assigned", "wrong"):
            await asker.create(name, 2)
        await asker.create("__consumer_offsets", 2)
        request = CreatePartitionsRequest(
            topics=[
                grow("good", 3),
                grow("same", 2),
                grow("assigned", 4, 1, 1),
                grow("wrong", 3, 9),
                grow("missing", 2),
                grow("__consumer_offsets", 3),
                grow("twice", 2),
                grow("twice", 2),
            ]
        )
        answer = await asker.ask(request, CreatePartitionsResponse)
        assert {result.name: result.error_code for result in answer.results} == {
            "good": ErrorCode.NONE,
            "same": ErrorCode.INVALID_PARTITIONS,
            "assigned": ErrorCode.NONE,
            "wrong": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "__consumer_offsets": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "twice": ErrorCode.INVALID_REQUEST,
        }
        counts = {name: topic.partitions for name, topic in asker.node.catalog.topics.items()}
        assert counts == {
            "good": 3,
            "same": 2,
            "assigned": 4,
            "wrong": 2,
            "__consumer_offsets": 2,
        }

    with_broker(tmp_path, scenario)


def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 1)
        request = CreatePartitionsRequest(
            topics=[grow("t", 3), grow("missing", 3)], validate_only=True
        )
        answer = await asker.ask(request, CreatePartitionsResponse)
        assert [result.error_code for result in answer.results] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert asker.node.catalog.topics["t"].partitions == 1

    with_broker(tmp_path, scenario)

"""AlterPartitionReassignments and ListPartitionReassignments: one broker holds everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from headrace.protocol.errors import ErrorCode

OTHERS = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("t", 0, [3], ErrorCode.NONE),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [3, 4], OTHERS),
        ("t", 0, [4], OTHERS),
        ("t", 0, [3, 3], OTHERS),
        ("t", 0, [], OTHERS),
        ("t", 1, [3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, [3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_only_the_assignment_that_is_can_be_asked_for(
    tmp_path: Path, version: int, topic: str, index: int, replicas: list[int] | None, code: int
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        row = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[row])]
        )
        answer = await asker.ask(request, AlterPartitionReassignmentsResponse, version)
        assert (answer.error_code, answer.error_message) == (0, None)
        (result,) = answer.responses
        assert result.name == topic
        (partition,) = result.partitions
        assert (partition.partition_index, partition.error_code) == (index, code)
        assert (partition.error_message is None) == (code == 0)

    with_broker(tmp_path, scenario, {"node.id": 3})


def test_no_partition_is_on_its_way(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        row = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
        for topics in (None, [row]):
            request = ListPartitionReassignmentsRequest(topics=topics)
            answer = await asker.ask(request, ListPartitionReassignmentsResponse)
            assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])

    with_broker(tmp_path, scenario)

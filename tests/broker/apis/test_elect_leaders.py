"""ElectLeaders: the one replica leads, or nobody does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.broker.apis.elect_leaders import PREFERRED, UNCLEAN
from headrace.protocol.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from headrace.protocol.errors import ErrorCode


def codes(answer: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (result.topic, partition.partition_id): partition.error_code
        for result in answer.replica_election_results
        for partition in result.partition_result
    }


def request(election_type: int = PREFERRED, **topics: list[int]) -> ElectLeadersRequest:
    rows = [TopicPartitions(topic=name, partitions=rows) for name, rows in topics.items()]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=rows)


@pytest.mark.parametrize("version", range(3))
def test_a_partition_with_its_leader_needs_no_election(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        answer = await asker.ask(request(t=[0, 1, 2], none=[0]), ElectLeadersResponse, version)
        assert answer.error_code == 0
        assert codes(answer) == {
            ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("election_type", "code"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_asked_for_all_only_partitions_without_a_leader_are_told(
    tmp_path: Path, election_type: int, code: ErrorCode
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        partition = asker.node.partitions.get("t", 1)
        assert partition is not None
        asker.node.fail_log_dir(partition.log.dir, OSError("broken"))
        every = ElectLeadersRequest(election_type=election_type, topic_partitions=None)
        assert codes(await asker.ask(every, ElectLeadersResponse)) == {("t", 1): code}

    with_broker(one, scenario, {"log.dirs": f"{one},{other}"})


def test_an_unknown_kind_of_election_is_refused(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        answer = await asker.ask(request(7, t=[0]), ElectLeadersResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert codes(answer) == {("t", 0): ErrorCode.INVALID_REQUEST}

    with_broker(tmp_path, scenario)

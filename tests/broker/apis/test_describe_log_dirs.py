"""DescribeLogDirs: what is where, and how much of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.broker.apis import describe_log_dirs
from headrace.protocol.api.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headrace.protocol.errors import ErrorCode

assert describe_log_dirs


def sizes(answer: DescribeLogDirsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_every_folder_tells_its_partitions_and_its_room(tmp_path: Path, version: int) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        await asker.produce("t", 0, b"x" * 1000)
        request = DescribeLogDirsRequest(topics=None)
        answer = await asker.ask(request, DescribeLogDirsResponse, version)
        assert [result.log_dir for result in answer.results] == [str(one), str(other)]
        assert [len(result.topics) for result in answer.results] == [1, 1]
        told = sizes(answer)
        assert told["t", 0] > 1000
        assert told["t", 1] == 0
        for result in answer.results:
            assert result.error_code == 0
            if version >= 4:
                assert result.total_bytes >= result.usable_bytes > 0
            else:
                assert result.total_bytes == -1
            for topic in result.topics:
                assert [(p.offset_lag, p.is_future_key) for p in topic.partitions] == [(0, False)]

    with_broker(one, scenario, {"log.dirs": f"{one},{other}"})


def test_only_the_partitions_asked_for_are_told(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a", 3)
        await asker.create("b")
        wanted = [
            DescribableLogDirTopic(topic="a", partitions=[1, 2, 9]),
            DescribableLogDirTopic(topic="missing", partitions=[0]),
        ]
        request = DescribeLogDirsRequest(topics=wanted)
        answer = await asker.ask(request, DescribeLogDirsResponse)
        assert set(sizes(answer)) == {("a", 1), ("a", 2)}
        nothing = await asker.ask(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
        assert sizes(nothing) == {}

    with_broker(tmp_path, scenario)


def test_a_failed_folder_is_told_as_such(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        asker.node.fail_log_dir(partition.log.dir, OSError("broken"))
        answer = await asker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        failed = Path(partition.log.dir).parent
        codes = {result.log_dir: result.error_code for result in answer.results}
        assert codes[str(failed)] == ErrorCode.KAFKA_STORAGE_ERROR
        assert sorted(codes.values()) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert set(sizes(answer)) == {("t", 1)}

    with_broker(one, scenario, {"log.dirs": f"{one},{other}"})

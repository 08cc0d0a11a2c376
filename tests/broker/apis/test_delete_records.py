"""DeleteRecords: the log's first offset moves up, for good."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.errors import ErrorCode


def before(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])])


async def outcome(asker: Asker, request: DeleteRecordsRequest, version: int) -> tuple[int, int]:
    answer = await asker.ask(request, DeleteRecordsResponse, version)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition.error_code, partition.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_before_an_offset_are_gone(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        for value in (b"a", b"b", b"c", b"d"):
            await asker.produce("t", 0, value)
        assert await outcome(asker, before("t", 2), version) == (0, 2)
        assert await outcome(asker, before("t", 1), version) == (0, 2)
        assert await outcome(asker, before("t", -1), version) == (0, 4)
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        assert partition.log.start_offset == 4

    with_broker(tmp_path, scenario)


def test_a_crash_does_not_bring_deleted_records_back(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"

    async def delete(asker: Asker) -> None:
        await asker.create("t")
        for value in (b"a", b"b", b"c"):
            await asker.produce("t", 0, value)
        assert await outcome(asker, before("t", 2), 2) == (0, 2)
        # What a crash at this moment would leave.
        shutil.copytree(data, copy)

    async def check(asker: Asker) -> None:
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        assert (partition.log.start_offset, partition.log.end_offset) == (2, 3)

    with_broker(data, delete)
    with_broker(copy, check)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (before("t", 3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (before("t", -2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (before("t", 0, partition=5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (before("missing", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (before("compacted", 0), ErrorCode.POLICY_VIOLATION),
        (before("__consumer_offsets", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_deleted_is_refused(
    tmp_path: Path, request_: DeleteRecordsRequest, code: ErrorCode
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        await asker.produce("t", 0, b"a", b"b")
        await asker.create("compacted", cleanup_policy="compact")
        await asker.create("__consumer_offsets")
        assert await outcome(asker, request_, 2) == (code, -1)

    with_broker(tmp_path, scenario)

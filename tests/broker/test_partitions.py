"""Partitions are found by topic and index, or the error says why they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.partitions import Partitions
from headrace.protocol.errors import ErrorCode, KafkaError

from .apis.asking import Asker, with_broker

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        (None, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        ("unknown", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_partition_that_is_not_served_has_its_error(
    topic: str | None, index: int, error: ErrorCode
) -> None:
    partitions = Partitions()
    partitions.add_offline("t", TOPIC_ID, 1)
    with pytest.raises(KafkaError) as raised:
        partitions.find(topic, index)
    assert raised.value.code is error


def test_a_partition_whose_disk_is_missing_exists() -> None:
    partitions = Partitions()
    partitions.add_offline("t", TOPIC_ID, 1)
    assert partitions.exists("t", 1)
    assert not partitions.exists("t", 0)
    assert partitions.name_of(TOPIC_ID) == "t"
    assert partitions.get("t", 1) is None


def test_a_deleted_topic_is_not_found_any_more(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        topic = await asker.create("t", partitions=2)
        partitions = asker.node.partitions
        served = partitions.find("t", 1)
        assert (served.topic, served.index, served.error) == ("t", 1, ErrorCode.NONE)
        assert partitions.name_of(topic.id) == "t"
        assert [partition.index for partition in partitions] == [0, 1]
        partitions.remove("t")
        assert served.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partitions.name_of(topic.id) is None
        with pytest.raises(KafkaError):
            partitions.find("t", 1)

    with_broker(tmp_path, scenario)


def test_waiting_for_the_end_returns_once_it_is_synced(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        partition = asker.node.partitions.find("t", 0)
        await asker.produce("t", 0, b"value")
        assert partition.log.high_watermark == partition.log.end_offset == 1
        assert not partition.has_unsynced

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, None), (0, None), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_client_of_another_leader_epoch_is_refused(
    tmp_path: Path, epoch: int, error: ErrorCode | None
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        partition = asker.node.partitions.find("t", 0)
        if error is None:
            partition.check(epoch)
        else:
            with pytest.raises(KafkaError) as raised:
                partition.check(epoch)
            assert raised.value.code is error

    with_broker(tmp_path, scenario)

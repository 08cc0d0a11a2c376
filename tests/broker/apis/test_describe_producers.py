"""DescribeProducers: what partitions remember of producers."""

from __future__ import annotations

from pathlib import Path

from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record


def test_the_last_sequence_of_each_producer_is_told(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        partition = asker.node.partitions.get("t", 0)
        assert partition is not None
        now_ms = asker.node.clock.now_ms()
        batch = build_batch(
            [Record(0, now_ms, b"k", b"v"), Record(1, now_ms, b"k", b"w")],
            producer_id=42,
            producer_epoch=3,
            base_sequence=0,
        )
        partition.append(memoryview(batch), now_ms)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=[0, 1])]
        )
        (topic,) = (await asker.ask(request, DescribeProducersResponse)).topics
        used, unused = topic.partitions
        (producer,) = used.active_producers
        assert (producer.producer_id, producer.producer_epoch) == (42, 3)
        assert (producer.last_sequence, producer.last_timestamp) == (1, now_ms)
        assert producer.current_txn_start_offset == -1
        assert (unused.error_code, unused.active_producers) == (0, [])

    with_broker(tmp_path, scenario)


def test_an_unknown_partition_is_told(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[7]),
                TopicRequest(name="bad name", partition_indexes=[0]),
            ]
        )
        answer = await asker.ask(request, DescribeProducersResponse)
        codes = [topic.partitions[0].error_code for topic in answer.topics]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]

    with_broker(tmp_path, scenario)

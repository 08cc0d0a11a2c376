"""DescribeTopicPartitions: topics page by page."""

from __future__ import annotations

from pathlib import Path

from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.protocol.errors import ErrorCode


async def page(
    asker: Asker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[dict[str | None, list[int]], tuple[str, int] | None]:
    """Partitions told of by topic, and where the next page begins."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await asker.ask(request, DescribeTopicPartitionsResponse)
    told = {topic.name: [p.partition_index for p in topic.partitions] for topic in answer.topics}
    following = answer.next_cursor
    if following is None:
        return told, None
    return told, (following.topic_name, following.partition_index)


def test_topics_are_described_in_the_order_of_their_names(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        made = await asker.create("b", 2)
        await asker.create("a")
        assert await page(asker) == ({"a": [0], "b": [0, 1]}, None)
        assert await page(asker, "b", "b") == ({"b": [0, 1]}, None)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")], cursor=None)
        (topic,) = (await asker.ask(request, DescribeTopicPartitionsResponse)).topics
        assert (topic.topic_id, topic.is_internal) == (made.id, False)
        assert topic.topic_authorized_operations == 0b1101_1111_1000
        partition = topic.partitions[1]
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert partition.replica_nodes == partition.isr_nodes == [1]
        assert partition.eligible_leader_replicas == partition.last_known_elr == []

    with_broker(tmp_path, scenario)


def test_pages_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a", 3)
        await asker.create("b", 2)
        await asker.create("c", 1)
        first, cursor = await page(asker, limit=2)
        assert (first, cursor) == ({"a": [0, 1]}, ("a", 2))
        second, cursor = await page(asker, limit=3, cursor=cursor)
        assert (second, cursor) == ({"a": [2], "b": [0, 1]}, ("c", 0))
        third, cursor = await page(asker, limit=3, cursor=cursor)
        assert (third, cursor) == ({"c": [0]}, None)

    with_broker(tmp_path, scenario)


def test_a_topic_gone_between_two_pages_is_skipped(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a", 3)
        await asker.create("b", 2)
        await asker.node.topics.delete("a")
        assert await page(asker, cursor=("a", 2)) == ({"b": [0, 1]}, None)

    with_broker(tmp_path, scenario)


def test_the_brokers_own_limit_holds(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a", 3)
        assert await page(asker, limit=100) == ({"a": [0, 1]}, ("a", 2))
        assert await page(asker, limit=0) == ({"a": [0, 1]}, ("a", 2))

    with_broker(tmp_path, scenario, {"max.request.partition.size.limit": 2})


def test_unknown_topics_and_bad_cursors_are_told(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a")
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in ("missing", "bad name", "a")], cursor=None
        )
        answer = await asker.ask(request, DescribeTopicPartitionsResponse)
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "a": 0,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        request.cursor = Cursor(topic_name="a", partition_index=-1)
        answer = await asker.ask(request, DescribeTopicPartitionsResponse)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}

    with_broker(tmp_path, scenario)

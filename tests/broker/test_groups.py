"""Groups on a real broker: the whole conversation, in the versions that clients speak."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker
from tests.coordinator.clients import ALL, GROUP, JAVA_2, NEWEST, GroupClient, Versions

from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.testing import VirtualClock

SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
}
HOUR_MS = 3_600_000


# Finding the coordinator.


@pytest.mark.parametrize("version", range(7))
def test_the_first_search_makes_the_topic_of_the_groups(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker, JAVA_2._replace(find=version))
        answer = await client.find()
        address = asker.node.cluster.brokers()[0]
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code == ErrorCode.NONE
        assert (found.node_id, found.host, found.port) == (
            address.node_id,
            address.host,
            address.port,
        )
        topic = asker.node.catalog.topics[CONSUMER_OFFSETS]
        assert topic.internal
        assert topic.partitions == 4
        assert topic.config["cleanup.policy"] == "compact"
        assert topic.config["segment.bytes"] == str(100 << 20)

    with_broker(tmp_path, scenario, SETTINGS)


def test_many_searches_at_once_make_the_topic_once(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        answers = await asyncio.gather(*(GroupClient(asker).find() for _ in range(5)))
        assert {answer.error_code for answer in answers} == {0}

    with_broker(tmp_path, scenario, SETTINGS)


def test_coordinators_of_other_kinds_are_not_here(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["x", "y"], key_type=2)
        answer = await asker.ask(request, FindCoordinatorResponse)
        assert [found.key for found in answer.coordinators] == ["x", "y"]
        for found in answer.coordinators:
            assert found.error_code == ErrorCode.INVALID_REQUEST
            assert "not supported" in (found.error_message or "")

    with_broker(tmp_path, scenario, SETTINGS)


def test_before_the_search_there_is_no_coordinator(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        assert (await client.join()).error_code == ErrorCode.NOT_COORDINATOR
        assert await client.heartbeat("m", 1) is ErrorCode.NOT_COORDINATOR

    with_broker(tmp_path, scenario, SETTINGS)


# The conversation.


@pytest.mark.parametrize("versions", ALL, ids=["kafka-go", "librdkafka", "java-2", "newest"])
def test_a_member_from_join_to_leave(tmp_path: Path, versions: Versions) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 3)
        client = GroupClient(asker, versions)
        member_id, generation = await client.settle()
        assert member_id.startswith("test-")
        assert await client.heartbeat(member_id, generation) is ErrorCode.NONE
        offsets = {("t", 0): 5, ("t", 2): 7}
        errors = await client.commit(offsets, member_id, generation, metadata="why")
        assert errors == dict.fromkeys(offsets, ErrorCode.NONE)
        assert await client.fetch(("t", 0), ("t", 1), ("t", 2)) == {
            ("t", 0): (5, "why"),
            ("t", 1): (-1, ""),
            ("t", 2): (7, "why"),
        }
        if versions.fetch >= 2:
            assert await client.fetch() == {("t", 0): (5, "why"), ("t", 2): (7, "why")}
        assert await client.leave(member_id) is ErrorCode.NONE
        assert await client.leave(member_id) is ErrorCode.UNKNOWN_MEMBER_ID

    with_broker(tmp_path, scenario, SETTINGS)


def test_two_members_share(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        first, generation = await client.settle()
        newcomer = asyncio.create_task(client.enter())
        while await client.heartbeat(first, generation) is ErrorCode.NONE:
            await asyncio.sleep(0)
        again, other = await asyncio.gather(client.join(first), newcomer)
        assert again.generation_id == other.generation_id == generation + 1
        assert {member.member_id for member in again.members} == {first, other.member_id}
        shares = {first: b"1", other.member_id: b"2"}
        follower = asyncio.create_task(client.sync(other.member_id, generation + 1))
        leader = await client.sync(first, generation + 1, shares)
        assert (leader.assignment, (await follower).assignment) == (b"1", b"2")

    with_broker(tmp_path, scenario, SETTINGS)


def test_rebalances_are_counted_by_what_brought_them_about(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        member_id, _ = await client.settle()
        await client.leave(member_id)
        await client.settle()
        counted = {
            sample.labels["cause"]: sample.value
            for sample in asker.node.metrics.samples()
            if sample.name == "rebalances"
        }
        assert counted == {"new-member": 2, "left": 1}

    with_broker(tmp_path, scenario, SETTINGS)


def test_what_does_not_exist_cannot_be_committed(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        client = GroupClient(asker)
        await client.find()
        errors = await client.commit({("t", 0): 1, ("t", 9): 1, ("gone", 0): 1})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == {
            ("t", 0): ErrorCode.NONE,
            ("t", 9): unknown,
            ("gone", 0): unknown,
        }
        by_id = GroupClient(asker, NEWEST)
        errors = await by_id.commit({("t", 1): 1, ("t", 9): 1, ("gone", 0): 1})
        assert errors == {
            ("t", 1): ErrorCode.NONE,
            ("t", 9): unknown,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }
        assert await by_id.fetch(("t", 1), ("gone", 0)) == {("t", 1): (1, ""), ("", 0): (-1, "")}

    with_broker(tmp_path, scenario, SETTINGS)


def test_offsets_of_several_groups_in_one_request(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        groups = [GroupClient(asker, NEWEST, f"g{n}") for n in range(6)]
        for number, client in enumerate(groups):
            await client.find()
            await client.commit({("t", 0): number})
        names = tuple(client.group for client in groups)
        assert await groups[0].fetch(("t", 0), groups=names) == {("t", 0): (5, "")}

    with_broker(tmp_path, scenario, SETTINGS)


# Administration.


def test_groups_are_listed_described_and_deleted(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        await client.commit({("t", 0): 1}, member_id, generation)
        simple = GroupClient(asker, group="simple")
        await simple.commit({("t", 0): 1})

        listed = await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert {(g.group_id, g.group_state, g.group_type) for g in listed.groups} == {
            (GROUP, "Stable", "classic"),
            ("simple", "Empty", "classic"),
        }
        stable = await asker.ask(ListGroupsRequest(states_filter=["Stable"]), ListGroupsResponse)
        assert [g.group_id for g in stable.groups] == [GROUP]

        request = DescribeGroupsRequest(groups=[GROUP, "x"], include_authorized_operations=True)
        described = await asker.ask(request, DescribeGroupsResponse)
        group, missing = described.groups
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert group.authorized_operations == 328
        assert [(m.member_id, m.client_host) for m in group.members] == [(member_id, "/127.0.0.1")]
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

        names = [GROUP, "simple", "x", GROUP]
        deleted = await asker.ask(DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse)
        assert [(r.group_id, r.error_code) for r in deleted.results] == [
            (GROUP, ErrorCode.NON_EMPTY_GROUP),
            ("simple", ErrorCode.NONE),
            ("x", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert await simple.fetch() == {}
        assert await client.fetch() == {("t", 0): (1, "")}
        nothing = await asker.ask(DeleteGroupsRequest(), DeleteGroupsResponse)
        assert nothing.results == []

    with_broker(tmp_path, scenario, SETTINGS)


def test_offsets_are_deleted(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        await asker.create("old")
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        await client.commit({("t", 0): 1, ("old", 0): 2}, member_id, generation)
        request = OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in ("t", "old", "gone")
            ],
        )
        answer = await asker.ask(request, OffsetDeleteResponse)
        assert answer.error_code == ErrorCode.NONE
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
            "t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            "old": ErrorCode.NONE,
            "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await client.fetch() == {("t", 0): (1, "")}

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_topic_made_again_does_not_inherit_offsets(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        await client.find()
        await client.commit({("t", 0): 7})
        await asker.node.topics.delete("t")
        await asker.create("t")
        assert await client.fetch(("t", 0)) == {("t", 0): (-1, "")}

    with_broker(tmp_path, scenario, SETTINGS)


# Time.


async def advance(clock: VirtualClock, ms: int) -> None:
    """Move the broker's clock; it rings on the loop, so the call is made from a thread."""
    await asyncio.to_thread(clock.advance, ms)


def test_sessions_follow_the_broker_clock(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        member_id, generation = await client.settle(session_ms=10_000)
        await advance(clock, 9_999)
        assert await client.heartbeat(member_id, generation) is ErrorCode.NONE
        await advance(clock, 9_999)
        assert await client.heartbeat(member_id, generation) is ErrorCode.NONE
        await advance(clock, 10_000)
        assert await client.heartbeat(member_id, generation) is ErrorCode.UNKNOWN_MEMBER_ID

    with_broker(tmp_path, scenario, SETTINGS, clock=clock)


def test_offsets_expire(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        await client.find()
        await client.commit({("t", 0): 7})
        await advance(clock, HOUR_MS - 60_000)
        assert await client.fetch() == {("t", 0): (7, "")}
        await advance(clock, 11 * 60_000)
        assert await client.fetch() == {}
        listed = await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert listed.groups == []

    # Other chores of that hour are not what this is about.
    quiet = dict.fromkeys(
        (
            "log.cleaner.backoff.ms",
            "log.flush.offset.checkpoint.interval.ms",
            "log.flush.start.offset.checkpoint.interval.ms",
            "log.retention.check.interval.ms",
        ),
        2 * HOUR_MS,
    )
    with_broker(
        tmp_path, scenario, SETTINGS | quiet | {"offsets.retention.minutes": 60}, clock=clock
    )

"""Clients of groups that call the API functions of a real broker, in several versions."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tests.broker.apis.asking import Asker
from tests.coordinator.harness import CODES, subscription

from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.protocol.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.errors import ErrorCode

GROUP = "g"


class Versions(NamedTuple):
    """The versions that one client speaks."""

    find: int
    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int
    fetch: int


KAFKA_GO = Versions(find=0, join=1, sync=0, heartbeat=0, leave=0, commit=2, fetch=1)
LIBRDKAFKA = Versions(find=2, join=5, sync=3, heartbeat=3, leave=1, commit=9, fetch=9)
JAVA_2 = Versions(find=3, join=7, sync=5, heartbeat=4, leave=4, commit=8, fetch=7)
NEWEST = Versions(find=6, join=9, sync=5, heartbeat=4, leave=5, commit=10, fetch=10)
ALL = (KAFKA_GO, LIBRDKAFKA, JAVA_2, NEWEST)


class GroupClient:
    """What consumers do, one request at a time."""

    def __init__(self, asker: Asker, versions: Versions = JAVA_2, group: str = GROUP) -> None:
        self.asker = asker
        self.versions = versions
        self.group = group

    async def find(self) -> FindCoordinatorResponse:
        version = self.versions.find
        request = (
            FindCoordinatorRequest(coordinator_keys=[self.group])
            if version >= 4
            else FindCoordinatorRequest(key=self.group)
        )
        return await self.asker.ask(request, FindCoordinatorResponse, version)

    async def join(self, member_id: str = "", session_ms: int = 10_000) -> JoinGroupResponse:
        return await self.asker.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
            ),
            JoinGroupResponse,
            self.versions.join,
        )

    async def enter(self, session_ms: int = 10_000) -> JoinGroupResponse:
        """Join as a new member, twice if that is asked for."""
        answer = await self.join(session_ms=session_ms)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await self.join(answer.member_id, session_ms)
        assert answer.error_code == ErrorCode.NONE
        return answer

    async def sync(
        self, member_id: str, generation: int, shares: dict[str, bytes] | None = None
    ) -> SyncGroupResponse:
        return await self.asker.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=generation,
                member_id=member_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=m, assignment=a)
                    for m, a in (shares or {}).items()
                ],
            ),
            SyncGroupResponse,
            self.versions.sync,
        )

    async def settle(self, session_ms: int = 10_000) -> tuple[str, int]:
        """A group of one member with its share; its id and its generation."""
        await self.find()
        joined = await self.enter(session_ms)
        member_id = joined.member_id
        synced = await self.sync(member_id, joined.generation_id, {member_id: b"share"})
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"share")
        return member_id, joined.generation_id

    async def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id
        )
        answer = await self.asker.ask(request, HeartbeatResponse, self.versions.heartbeat)
        return CODES[answer.error_code]

    async def leave(self, member_id: str) -> ErrorCode:
        version = self.versions.leave
        request = (
            LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=member_id)])
            if version >= 3
            else LeaveGroupRequest(group_id=self.group, member_id=member_id)
        )
        answer = await self.asker.ask(request, LeaveGroupResponse, version)
        return CODES[answer.members[0].error_code if answer.members else answer.error_code]

    async def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        metadata: str | None = "",
    ) -> dict[tuple[str, int], ErrorCode]:
        """Commit; the error of each partition."""
        version = self.versions.commit
        names = {self._topic_id(topic): topic for topic, _ in offsets}
        topics = [
            OffsetCommitRequestTopic(
                name="" if version >= 10 else name,
                topic_id=topic_id if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=metadata,
                    )
                    for (topic, partition), offset in offsets.items()
                    if topic == name
                ],
            )
            for topic_id, name in names.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=topics,
        )
        answer = await self.asker.ask(request, OffsetCommitResponse, version)
        return {
            (topic.name or names[topic.topic_id], p.partition_index): CODES[p.error_code]
            for topic in answer.topics
            for p in topic.partitions
        }

    async def fetch(
        self, *partitions: tuple[str, int], groups: tuple[str, ...] | None = None
    ) -> dict[tuple[str, int], tuple[int, str | None]]:
        """Offsets and metadata of partitions, of all if none are named; of the last group."""
        version = self.versions.fetch
        names = {self._topic_id(topic): topic for topic, _ in partitions}
        indexes = {name: [p for t, p in partitions if t == name] for name in names.values()}
        if version < 8:
            request = OffsetFetchRequest(
                group_id=self.group,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=found)
                    for name, found in indexes.items()
                ]
                if partitions
                else None,
            )
            answer = await self.asker.ask(request, OffsetFetchResponse, version)
            assert answer.error_code == ErrorCode.NONE
            return {
                (topic.name, p.partition_index): (p.committed_offset, p.metadata)
                for topic in answer.topics
                for p in topic.partitions
            }
        request = OffsetFetchRequest(
            require_stable=True,
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[
                        OffsetFetchRequestTopics(
                            name="" if version >= 10 else name,
                            topic_id=topic_id if version >= 10 else bytes(16),
                            partition_indexes=indexes[name],
                        )
                        for topic_id, name in names.items()
                    ]
                    if partitions
                    else None,
                )
                for group in groups or (self.group,)
            ],
        )
        answer = await self.asker.ask(request, OffsetFetchResponse, version)
        assert [group.error_code for group in answer.groups] == [0] * len(answer.groups)
        catalog = self.asker.node.catalog
        found = {}
        for topic in answer.groups[-1].topics:
            known = catalog.by_id(topic.topic_id)
            name = topic.name or (known.name if known else "")
            for p in topic.partitions:
                found[name, p.partition_index] = (p.committed_offset, p.metadata)
        return found

    def _topic_id(self, name: str) -> bytes:
        """The id of a topic; for one that does not exist, one that nobody has."""
        topic = self.asker.node.catalog.get(name)
        return name.encode().ljust(16, b"\xff")[:16] if topic is None else topic.id


async def turns(count: int = 20) -> None:
    """Let the loop go round, so that whatever could happen without waiting has happened."""
    for _ in range(count):
        await asyncio.sleep(0)

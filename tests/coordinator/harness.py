"""A coordinator with a log, timers and clients, all in memory and in virtual time."""

from __future__ import annotations

from itertools import count
from typing import Any, TypeVar

from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Call, Cause, Now, Result, TimerKey
from headrace.coordinator.group import Group
from headrace.coordinator.records import Change, Commit, decode, encode
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.api.heartbeat import HeartbeatRequest
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
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from headrace.protocol.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.codec import encode as encode_message
from headrace.protocol.errors import ErrorCode
from headrace.protocol.logs.consumer_protocol import ConsumerProtocolSubscription

R = TypeVar("R")

START_MS = 1_700_000_000_000
GROUP = "g"
CODES = {int(code): code for code in ErrorCode}


class Waiting:
    """A client that waits for an answer."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def waits(self) -> bool:
        return not self.answers

    def answer(self, kind: type[R]) -> R:
        """The one answer that came."""
        (answer,) = self.answers
        assert isinstance(answer, kind)
        return answer

    @property
    def joined(self) -> JoinGroupResponse:
        return self.answer(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        return self.answer(SyncGroupResponse)

    @property
    def error(self) -> ErrorCode:
        (answer,) = self.answers
        return CODES[answer.error_code]


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, as clients send it."""
    message = ConsumerProtocolSubscription(topics=list(topics))
    return b"\x00\x01" + encode_message(message, 1)


class Harness:
    """Carries out what a coordinator asks for, at once and in order."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self._ids = count(1)
        self.coordinator = GroupCoordinator(self.settings, self._new_id)
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.rebalances: list[str] = []
        self.causes: list[Cause] = []
        self.disk_is_full = False

    def _new_id(self) -> str:
        return f"{next(self._ids):03}"

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms - START_MS)

    def call(self, version: int = 9) -> tuple[Waiting, Call]:
        waiting = Waiting()
        return waiting, Call(waiting, version, "client", "/127.0.0.1", self.now)

    def carry_out(self, result: Result) -> None:
        """Do what a broker does with a result."""
        for key, delay_ms in result.timers:
            self.timers.pop(key, None)
            if delay_ms is not None:
                self.timers[key] = self.now_ms + delay_ms
        self.rebalances += [rebalance.reason for rebalance in result.rebalances]
        self.causes += [rebalance.cause for rebalance in result.rebalances]
        if self.disk_is_full and result.records:
            return
        for change in result.records:
            self.log.append(encode(change))
            self.coordinator.replay(read(*self.log[-1]))
        for token, response in result.replies:
            assert isinstance(token, Waiting)
            assert token.waits, "nobody is answered twice"
            token.answers.append(response)

    def advance(self, ms: int) -> None:
        """Let time pass, and every timer ring on its way."""
        end_ms = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda key: self.timers[key])
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.carry_out(self.coordinator.on_timer(key, self.now))
        self.now_ms = end_ms

    def recovered(self, records: int | None = None) -> GroupCoordinator:
        """A coordinator that has read the log, or its first `records` only."""
        coordinator = GroupCoordinator(self.settings, self._new_id)
        for key, value in self.log[:records]:
            coordinator.replay(read(key, value))
        return coordinator

    def restart(self) -> None:
        """Lose everything but the log."""
        self.coordinator = self.recovered()
        self.timers.clear()
        self.carry_out(self.coordinator.resume(self.now))

    @property
    def group(self) -> Group:
        return self.coordinator.groups[GROUP]

    def state(self) -> State:
        """The group's state; a call, so that type checkers expect it to change."""
        return self.group.state

    # Requests.

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        group: str = GROUP,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        reason: str | None = None,
    ) -> Waiting:
        waiting, call = self.call(version)
        named = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in named.items()],
            reason=reason,
        )
        self.carry_out(self.coordinator.classic.join(request, call))
        return waiting

    def sync(
        self,
        member_id: str,
        generation: int,
        shares: dict[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Waiting:
        waiting, call = self.call(5)
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (shares or {}).items()
            ],
        )
        self.carry_out(self.coordinator.classic.sync(request, call))
        return waiting

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        *,
        group: str = GROUP,
        instance: str | None = None,
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.coordinator.classic.heartbeat(request, self.now)

    def leave(self, *members: tuple[str, str | None], group: str = GROUP) -> list[ErrorCode]:
        waiting, call = self.call(5)
        request = LeaveGroupRequest(
            group_id=group,
            members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in members],
        )
        self.carry_out(self.coordinator.classic.leave(request, call))
        response = waiting.answer(LeaveGroupResponse)
        assert not response.error_code
        return [CODES[member.error_code] for member in response.members]

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        *,
        version: int = 8,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        leader_epoch: int = -1,
    ) -> list[ErrorCode]:
        waiting, call = self.call(version)
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=n, partitions=p) for n, p in topics.items()],
        )
        self.carry_out(self.coordinator.commits.commit(request, call))
        response = waiting.answer(OffsetCommitResponse)
        return [CODES[p.error_code] for topic in response.topics for p in topic.partitions]

    def fetch(
        self,
        topic: str | None = None,
        partition: int = 0,
        *,
        group: str = GROUP,
        require_stable: bool = False,
    ) -> list[OffsetFetchResponsePartitions]:
        topics = None
        if topic is not None:
            topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics)
        response = self.coordinator.commits.fetch(request, require_stable=require_stable)
        assert not response.error_code
        return [partition for topic in response.topics for partition in topic.partitions]

    def committed(self, topic: str, partition: int = 0, *, group: str = GROUP) -> Commit | None:
        return self.coordinator.offsets.get(group, topic, partition)

    # Whole stories.

    def new_member(self, **options: Any) -> tuple[str, Waiting]:
        """A member that has its id and waits for the joining to end."""
        member_id = self.join(**options).joined.member_id
        return member_id, self.join(member_id, **options)

    def stable(self, size: int = 2, **options: Any) -> list[str]:
        """A stable group of this many members, the leader first; each has its id as its share."""
        waiting = [self.new_member(**options) for _ in range(size)]
        self.advance(self.settings.initial_rebalance_delay_ms)
        self.advance(self.settings.initial_rebalance_delay_ms)
        members = [member_id for member_id, _ in waiting]
        for _, join in waiting:
            assert join.error is ErrorCode.NONE
        self.share_out(members)
        return members

    def share_out(self, members: list[str]) -> None:
        """Let all members sync; each gets its own id as its share."""
        generation = self.group.generation
        leader = self.group.leader
        assert leader is not None
        syncs = {m: self.sync(m, generation) for m in members if m != leader}
        syncs[leader] = self.sync(leader, generation, {m: m.encode() for m in members})
        assert {m: sync.synced.assignment for m, sync in syncs.items()} == {
            m: m.encode() for m in members
        }


def read(key: bytes, value: bytes | None) -> Change:
    """A record as a change; every record of these tests is one."""
    change = decode(key, value)
    assert change is not None
    return change

"""Members of a group, as clients are: they join, share out, beat, commit, and misbehave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.clients import Client, Lost
from tests.simulation.history import History, Share
from tests.simulation.message_text import CODES
from tests.simulation.network import Network
from tests.simulation.offsets import TOPIC, commit_offsets, find_group, look_up
from tests.simulation.world import Process, World

from headrace.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.protocol.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.codec import decode, encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.logs.consumer_protocol import ConsumerProtocolSubscription

EAGER = "range"
COOPERATIVE = "cooperative-sticky"

# Answers after which a client asks again, of a coordinator that it has looked for again.
COORDINATOR_GONE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Versions(NamedTuple):
    """The versions that one kind of client speaks."""

    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int
    fetch: int


# As old as kafka-go, as librdkafka, as Java 2.4, and the newest that have no topic ids.
OLD = Versions(join=1, sync=0, heartbeat=0, leave=0, commit=2, fetch=1)
MIDDLE = Versions(join=5, sync=3, heartbeat=3, leave=1, commit=7, fetch=7)
NEWER = Versions(join=7, sync=5, heartbeat=4, leave=4, commit=8, fetch=7)
NEWEST = Versions(join=9, sync=5, heartbeat=4, leave=5, commit=9, fetch=9)
STATIC_JOIN_VERSION = 5


@dataclass(frozen=True)
class Plan:
    """What one member is like."""

    group: str
    partitions: int
    versions: Versions
    protocols: tuple[str, ...]
    instance: str | None
    session_ms: int
    rebalance_ms: int
    # The chance that a step is a strange one: a nap, a goodbye, a join out of turn.
    strange: float


class Fenced(Exception):
    """Another process has taken this static member's place."""


class Rejoin(Exception):
    """The member must join again."""


class Member:
    """One consumer in a process of its own."""

    def __init__(self, process: Process, network: Network, history: History, plan: Plan) -> None:
        self.process = process
        self.world: World = process.world
        self.client = Client(process, network)
        self.plan = plan
        self.history = history
        self.calm = False
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.share: tuple[int, ...] = ()
        # The generation before, in whose name a slow thread of the program may still commit.
        self._past = -1
        # Whether the last that it heard was that all is well.
        self.is_settled = False
        process.create_task(self.run())

    async def run(self) -> None:
        """Take part until the process dies or another one has its place."""
        while True:
            self.is_settled = False
            try:
                await find_group(self.client, self.plan.group)
                await self._join_and_sync()
                await self._look()
                await self._consume()
            except Rejoin:
                pass
            except Lost:
                await self.client.pause()
            except Fenced:
                self.process.kill()
                return

    # A round.

    async def _join_and_sync(self) -> None:
        joined = await self._join()
        self._past, self.generation = self.generation, joined.generation_id
        self.protocol = joined.protocol_name or ""
        shares: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = self._share_out({m.member_id: m.metadata for m in joined.members})
            if not self.calm and self.world.happens(self.plan.strange):
                await self.client.pause(0, self.plan.rebalance_ms * 2)
        plan, versions = self.plan, self.plan.versions
        asked_us = self.world.now_us
        synced = await self.client.ask(
            SyncGroupRequest(
                group_id=plan.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=plan.instance,
                protocol_type="consumer" if versions.sync >= 5 else None,
                protocol_name=self.protocol if versions.sync >= 5 else None,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                    for member_id, share in shares.items()
                ],
            ),
            SyncGroupResponse,
            versions.sync,
            plan.rebalance_ms + 3_000,
        )
        self._obey(CODES[synced.error_code])
        share = tuple(synced.assignment)
        self.history.shares.append(
            Share(plan.group, self.generation, self.owner, share, asked_us, self.world.now_us)
        )
        given_up = set(self.share) - set(share)
        self.share = share
        if given_up and self.protocol == COOPERATIVE:
            # What it gives up can be given to others in the next round.
            raise Rejoin

    async def _join(self) -> JoinGroupResponse:
        plan = self.plan
        while True:
            joined = await self.client.ask(
                JoinGroupRequest(
                    group_id=plan.group,
                    session_timeout_ms=plan.session_ms,
                    rebalance_timeout_ms=plan.rebalance_ms,
                    member_id=self.member_id,
                    group_instance_id=plan.instance,
                    protocol_type="consumer",
                    protocols=[
                        JoinGroupRequestProtocol(name=name, metadata=self._metadata(name))
                        for name in plan.protocols
                    ],
                ),
                JoinGroupResponse,
                plan.versions.join,
                plan.rebalance_ms + 3_000,
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED:
                await self.client.pause(500, 2_000)
                raise Rejoin
            self._obey(CODES[joined.error_code])
            self.member_id = joined.member_id
            return joined

    def _metadata(self, protocol: str) -> bytes:
        # An eager member gives all up before it joins; a cooperative one says what it has.
        owned = bytes(self.share) if protocol == COOPERATIVE else b""
        message = ConsumerProtocolSubscription(topics=[TOPIC], user_data=owned)
        return b"\x00\x00" + encode(message, 0)

    def _share_out(self, metadata: dict[str, bytes]) -> dict[str, bytes]:
        """Each partition to one member at most: cooperatively, or otherwise than the last time."""
        members = list(metadata)
        count = self.plan.partitions
        if self.protocol != COOPERATIVE:
            mixed = self.world.chance.sample(range(count), k=count)
            return {
                member_id: bytes(mixed[number :: len(members)])
                for number, member_id in enumerate(members)
            }
        shares: dict[str, list[int]] = {member_id: [] for member_id in members}
        most = -(-count // len(members))
        taken = set()
        for member_id, data in metadata.items():
            for partition in decode(ConsumerProtocolSubscription, 0, data, 2).user_data or b"":
                # What somebody has and may not keep goes to nobody before it is given up.
                if partition not in taken and len(shares[member_id]) < most:
                    shares[member_id].append(partition)
                taken.add(partition)
        for partition in sorted(set(range(count)) - taken):
            shares[min(members, key=lambda member_id: len(shares[member_id]))].append(partition)
        return {member_id: bytes(share) for member_id, share in shares.items()}

    def _obey(self, error: ErrorCode) -> None:
        """Do what clients do about an error of the group protocol."""
        if not error:
            return
        if error is ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        elif error is ErrorCode.ILLEGAL_GENERATION:
            self.share = ()
        elif error in COORDINATOR_GONE or error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise Lost(error.name)
        raise Rejoin

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.share = ()

    @property
    def owner(self) -> str:
        return self.plan.instance or self.member_id

    # Between rounds.

    async def _consume(self) -> None:
        """Beat and commit until the group rebalances."""
        plan, chance = self.plan, self.world.chance
        self.is_settled = True
        while True:
            await self.client.pause(plan.session_ms // 8, plan.session_ms // 3)
            if not self.calm and chance.random() < plan.strange:
                await self._be_strange()
            if self.share and chance.random() < 0.4:
                await self._commit(chance.sample(self.share, k=min(2, len(self.share))))
            if self.share and self._past >= 0 and chance.random() < 0.05:
                await self._commit_late()
            if self.share and chance.random() < 0.2:
                await self._look()
            await self._beat()

    async def _beat(self) -> None:
        beaten = await self.client.ask(
            HeartbeatRequest(
                group_id=self.plan.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.plan.instance,
            ),
            HeartbeatResponse,
            self.plan.versions.heartbeat,
        )
        error = CODES[beaten.error_code]
        if error is ErrorCode.REBALANCE_IN_PROGRESS and self.world.happens(0.5):
            # The last chance to commit what was done.
            await self._commit(list(self.share))
        self._obey(error)

    async def _be_strange(self) -> None:
        strange = self.world.between(0, 4)
        if strange == 0:  # busy for longer than its session
            await self.client.pause(self.plan.session_ms, self.plan.session_ms * 2)
        elif strange == 1:
            raise Rejoin
        elif strange == 2:
            await self._leave()
        elif strange == 3:  # a slow rejoin
            await self._beat()
            await self.client.pause(0, self.plan.rebalance_ms * 2)
        else:  # another line for what follows
            self.client.close()

    async def _leave(self) -> None:
        version = self.plan.versions.leave
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.plan.instance)
        request = (
            LeaveGroupRequest(group_id=self.plan.group, members=[identity])
            if version >= 3
            else LeaveGroupRequest(group_id=self.plan.group, member_id=self.member_id)
        )
        await self.client.ask(request, LeaveGroupResponse, version)
        self._forget()
        await self.client.pause(0, 2_000)
        raise Rejoin

    # Offsets.

    async def _commit(self, partitions: list[int]) -> None:
        error = await commit_offsets(
            self.client,
            self.history,
            self.plan.group,
            partitions,
            self.plan.versions.commit,
            member_id=self.member_id,
            instance=self.plan.instance,
            generation=self.generation,
        )
        self._obey(error)

    async def _commit_late(self) -> None:
        await commit_offsets(
            self.client,
            self.history,
            self.plan.group,
            [self.world.chance.choice(self.share)],
            self.plan.versions.commit,
            member_id=self.member_id,
            instance=self.plan.instance,
            generation=self._past,
        )

    async def _look(self) -> None:
        if self.share:
            await look_up(
                self.client, self.history, self.plan.group, self.share, self.plan.versions.fetch
            )

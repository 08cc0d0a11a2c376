"""Worlds of groups: members of all kinds, administrators, and a broker that falls.

`python -m tests.simulation groups SEED` tells the story of one.
"""

from __future__ import annotations

import asyncio

from tests.simulation.clients import Client, Lost
from tests.simulation.fault_injector import FaultInjector
from tests.simulation.history import Commit, History, Outcome
from tests.simulation.invariants import OF_GROUPS
from tests.simulation.machine import Machine
from tests.simulation.members import (
    COOPERATIVE,
    EAGER,
    MIDDLE,
    NEWER,
    NEWEST,
    OLD,
    STATIC_JOIN_VERSION,
    Member,
    Plan,
)
from tests.simulation.message_text import CODES
from tests.simulation.network import Network
from tests.simulation.offsets import TOPIC, commit_offsets, look_up
from tests.simulation.world import Process, World

from headrace.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.errors import ErrorCode

GROUP = "g"
SIMPLE_GROUP = "simple"
PARTITIONS = 3
SETTLE_MS = 60_000
LOOKS_MAX = 100
# What the members of one world may support. After a restart the log knows of each member only the
# protocol that was chosen, as in Kafka, so every member must support all.
PROTOCOLS: tuple[tuple[tuple[str, ...], ...], ...] = (
    ((EAGER,),),
    ((COOPERATIVE, EAGER),),
    ((COOPERATIVE, EAGER), (EAGER, COOPERATIVE)),
)


class Groups:
    """One world with one group, a few members and somebody who commits without a group."""

    NAME = "groups"
    INVARIANTS = OF_GROUPS

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        self.history = History()
        self.network = Network(world)
        self._size_max = world.chance.choice((2, 100, 100, 100))
        self.machine = Machine(
            world,
            self.network,
            {
                "group.initial.rebalance.delay.ms": world.chance.choice((0, 0, 500)),
                "group.max.size": self._size_max,
            },
        )
        self.faults = FaultInjector(world, self.machine, self.network)
        self.faults.clients = self.processes
        self.members: list[Member] = []
        self._names = 0
        self._protocols = world.chance.choice(PROTOCOLS)
        self._session_ms = world.chance.choice((1_000, 2_000, 3_000, 6_000))
        self._main = Process(world, "main")

    def run(self) -> None:
        """Let the whole story happen."""
        with self.machine.hardware():
            self.world.run(self._main, self._story())

    async def _story(self) -> None:
        await self.machine.start()
        await self.machine.create_topic(TOPIC, PARTITIONS)
        for _ in range(self.world.between(1, 4)):
            self.add_member()
        admin = Administrator(self.process("admin"), self.network, self.history)
        own = [self.add_member, self.kill_member, self.replace_member]
        await self.faults.act(self.world.between(2, 5), 3_000, own)
        await self.faults.heal()
        admin.calm = True
        for member in self.members:
            member.calm = True
        await self._settle()
        # What clients were told must outlive a last crash.
        if self.world.happens(0.5):
            self.machine.lose_power()
            await self.machine.start()
        await self._look()

    async def _settle(self) -> None:
        end_us = self.world.now_us + SETTLE_MS * 1000
        while not self._settled():
            if self.world.now_us > end_us:
                self.history.stuck.append(f"the group is not stable after {SETTLE_MS} ms of peace")
                return
            await asyncio.sleep(0.25)

    def _settled(self) -> bool:
        alive = [member for member in self.members if member.process.alive]
        inside = [member for member in alive if member.is_settled]
        if len(inside) < min(len(alive), self._size_max):
            return False
        shares = sorted(partition for member in inside for partition in member.share)
        generations = {member.generation for member in inside}
        return not alive or (shares == list(range(PARTITIONS)) and len(generations) == 1)

    async def _look(self) -> None:
        process = self.process("last")
        client = Client(process, self.network)
        looked = asyncio.get_running_loop().create_future()

        async def look() -> None:
            for group in (GROUP, SIMPLE_GROUP):
                for _ in range(LOOKS_MAX):
                    try:
                        if await look_up(
                            client, self.history, group, tuple(range(PARTITIONS)), NEWEST.fetch
                        ):
                            break
                    except Lost:
                        pass
                    await client.pause()
                else:
                    self.history.stuck.append(f"the offsets of {group} cannot be read")
            looked.set_result(None)

        process.create_task(look())
        await looked

    # Who takes part.

    def processes(self) -> list[Process]:
        """The clients that live."""
        return [member.process for member in self.members if member.process.alive]

    def process(self, name: str) -> Process:
        self._names += 1
        return Process(self.world, f"{name}-{self._names}")

    def add_member(self, instance: str | None = None) -> None:
        """A new consumer comes."""
        if len(self.processes()) >= 5:
            return
        world = self.world
        versions = world.chance.choice((OLD, MIDDLE, NEWER, NEWEST))
        if instance is not None and versions.join < STATIC_JOIN_VERSION:
            versions = NEWER
        if instance is None and versions.join >= STATIC_JOIN_VERSION and world.happens(0.4):
            instance = world.chance.choice(("a", "b", "c"))
        plan = Plan(
            GROUP,
            PARTITIONS,
            versions,
            world.chance.choice(self._protocols),
            instance,
            self._session_ms,
            # Longer than the pause between two heartbeats, or nobody would come in time.
            world.chance.choice((self._session_ms // 2 + 300, 3_300)),
            strange=world.chance.choice((0.0, 0.05, 0.2)),
        )
        process = self.process("member")
        world.tell("faults", f"lets {process.name} begin", plan)
        self.members.append(Member(process, self.network, self.history, plan))

    def kill_member(self) -> None:
        """A consumer dies."""
        alive = self.processes()
        if alive:
            process = self.world.chance.choice(alive)
            self.world.tell("faults", "kills", process.name)
            process.kill()

    def replace_member(self) -> None:
        """A static member comes up again, though its old process may live on."""
        static = [member for member in self.members if member.plan.instance is not None]
        if static:
            old = self.world.chance.choice(static)
            if self.world.happens(0.6) and old.process.alive:
                self.world.tell("faults", "kills", old.process.name)
                old.process.kill()
            self.add_member(old.plan.instance)


class Administrator:
    """Commits to a group without members, tries to commit to one with, and deletes groups."""

    def __init__(self, process: Process, network: Network, history: History) -> None:
        self.client = Client(process, network)
        self.world = process.world
        self.history = history
        self.calm = False
        process.create_task(self.run())

    async def run(self) -> None:
        while not self.calm:
            await self.client.pause(100, 3_000)
            try:
                await self._act()
            except Lost:
                await self.client.pause()

    async def _act(self) -> None:
        group = self.world.chance.choice((GROUP, SIMPLE_GROUP, SIMPLE_GROUP))
        partition = self.world.between(0, PARTITIONS - 1)
        kind = self.world.between(0, 5)
        if kind <= 2:
            await commit_offsets(self.client, self.history, group, [partition], NEWEST.commit)
        elif kind <= 4:
            await look_up(self.client, self.history, group, (partition,), NEWEST.fetch)
        else:
            await self._delete(group)

    async def _delete(self, group: str) -> None:
        sent_us = self.world.now_us
        deleted = [
            Commit((group, partition), None, None, sent_us, self.client.name)
            for partition in range(PARTITIONS)
        ]
        self.history.commits += deleted
        answer = await self.client.ask(
            DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse, 2
        )
        error = CODES[answer.results[0].error_code]
        for commit in deleted:
            commit.answered_us = self.world.now_us
            if not error:
                commit.outcome = Outcome.DONE
            elif error in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND):
                commit.outcome = Outcome.REFUSED

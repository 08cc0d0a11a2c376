"""Programs that consume, process and produce: each number of their input once, so it is promised.

What they read is only a number that counts up, so what they put out says which input it is made
of, and the offset that they commit says how far they have come.
"""

from __future__ import annotations

from tests.simulation.clients import Lost
from tests.simulation.history import History, Place
from tests.simulation.members import NEWER, Member, Plan
from tests.simulation.network import Network
from tests.simulation.offsets import find_group, look_up
from tests.simulation.producers import (
    PARTITIONS,
    Abortable,
    Fenced,
    Membership,
    Producer,
    Versions,
)
from tests.simulation.world import Process

LOOKS_MAX = 40


class Processor(Producer):
    """One input, one transactional id: whoever has the id has the input."""

    async def transact(self) -> None:
        await process(self, (self.transactional_id, 0), Membership())


class Worker(Member):
    """Shares its inputs with others in a group, and has a transactional id of its own (KIP-447)."""

    def __init__(self, network: Network, history: History, plan: Plan, producer: Producer) -> None:
        self._producer = producer
        super().__init__(producer.process, network, history, plan)

    async def _consume(self) -> None:
        plan = self.plan
        while not self.calm:
            await self.client.pause(plan.session_ms // 4, plan.session_ms // 2)
            if self.world.happens(plan.strange):
                await self.client.pause(plan.session_ms, plan.session_ms * 2)
            if self.share:
                await self._process((plan.group, self.world.chance.choice(self.share)))
            await self._beat()
        self.process.kill()

    async def _commit(self, partitions: list[int]) -> None:
        """It commits in its transactions only."""

    async def _process(self, place: Place) -> None:
        producer = self._producer
        membership = Membership(self.member_id, self.generation, self.plan.instance)
        try:
            if producer.needs_epoch:
                await producer.begin_epoch()
            await process(producer, place, membership)
        except Fenced:
            producer.forget()
        except (Abortable, Lost):
            await self.client.pause()


async def process(producer: Producer, place: Place, membership: Membership) -> None:
    """See where the others have come to, put out the next few, commit the place with them."""
    world = producer.world
    group, source = place
    start = await committed(producer, place)
    count = world.between(1, 2)
    transaction = producer.new_transaction()
    partition = world.between(0, PARTITIONS - 1)
    try:
        await producer.add_partitions([partition])
        for number in range(start, start + count):
            value = f"{group}/{source}@{number}#{transaction.name}"
            await producer.send(transaction, partition, value)
            await producer.dawdle()
        await producer.commit_offset(transaction, place, start + count, membership)
        await producer.dawdle()
    except Abortable:
        await producer.end(transaction, committed=False)
        return
    await producer.end(transaction, committed=True)


async def committed(producer: Producer, place: Place) -> int:
    """The committed place, once no transaction can change it any more."""
    client, history = producer.client, producer.history
    for _ in range(LOOKS_MAX):
        await find_group(client, place[0])
        if await look_up(client, history, place[0], (place[1],), NEWER.fetch):
            return history.looks[-1].offset or 0
        await client.pause(20, 300)
    raise Lost("the place is not known")


def new_worker(
    process: Process,
    network: Network,
    history: History,
    plan: Plan,
    versions: Versions,
    timeout_ms: int,
    strange: float,
) -> Worker:
    """A worker with a producer in the same process."""
    producer = Producer(
        process,
        network,
        history,
        f"worker-{process.name}",
        versions,
        timeout_ms,
        strange,
        runs=False,
    )
    return Worker(network, history, plan, producer)

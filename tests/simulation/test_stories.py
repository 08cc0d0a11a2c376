"""Stories that the simulation found to end badly, told step by step so that they stay told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.simulation.clients import Lost
from tests.simulation.history import History, Transaction
from tests.simulation.invariants import OF_TRANSACTIONS, violations
from tests.simulation.machine import DATA, Machine
from tests.simulation.network import Network
from tests.simulation.offsets import TOPIC
from tests.simulation.producers import JAVA_3, JAVA_4, Abortable, Fenced, Producer, Versions
from tests.simulation.readers import Reader
from tests.simulation.running import silence
from tests.simulation.world import Process, World


class Harness:
    """One machine, one producer whose steps a test decides, one reader in the end."""

    def __init__(self) -> None:
        self.world = World(0)
        self.network = Network(self.world)
        self.history = History()
        self.machine = Machine(
            self.world, self.network, {"transaction.state.log.num.partitions": 1}
        )
        self._main = Process(self.world, "main")

    def tell(
        self, versions: Versions, story: Callable[[Scripted], Awaitable[None]]
    ) -> tuple[list[str], History]:
        """Let a producer do as the story says; what is wrong in the end, and what was seen."""
        with silence(), self.machine.hardware():
            self.world.run(self._main, self._run(versions, story))
        self.world.end()
        return violations(self.history, OF_TRANSACTIONS), self.history

    async def _run(self, versions: Versions, story: Callable[[Scripted], Awaitable[None]]) -> None:
        await self.machine.start()
        await self.machine.create_topic(TOPIC, 1)
        process = Process(self.world, "producer")
        producer = Scripted(
            process, self.network, self.history, "writer", versions, 60_000, strange=0
        )
        producer.story = story
        while process.alive:
            await asyncio.sleep(0.1)
        if producer.failure is not None:
            raise producer.failure
        reader = Reader(Process(self.world, "reader"), self.network, 1)
        reading = reader.process.create_task(reader.read_all())
        while not reading.done():
            await asyncio.sleep(0.1)
        assert reading.result()
        self.history.last = {0: reader.readings[0]}


class Scripted(Producer):
    """A producer that does as a story says."""

    story: Callable[[Scripted], Awaitable[None]]
    failure: BaseException | None = None

    async def run(self) -> None:
        try:
            await self.begin_epoch()
            await self.story(self)
        except BaseException as error:
            self.failure = error
        self.process.kill()

    async def begin_again(self) -> None:
        """Get a new epoch, as a client does whose requests may have been lost."""
        await self.begin_epoch()


@pytest.mark.parametrize("versions", [JAVA_3, JAVA_4], ids=["v1", "v2"])
def test_a_batch_that_was_aborted_at_the_start_is_not_taken_for_a_repetition(
    versions: Versions,
) -> None:
    """The power fails when a batch is on disk and what its coordinator knows of it is not.

    The start aborts the batch, since it belongs to no known transaction. Its producer sends it
    again: to acknowledge it as already there would be to lose it.
    """
    harness = Harness()

    async def story(producer: Scripted) -> None:
        machine = harness.machine
        await in_a_transaction(producer, producer.new_transaction())
        await asyncio.sleep(1)  # its markers are durable now
        transaction = producer.new_transaction()
        process = machine.process
        assert process is not None
        process.thread_us = (5_000_000, 6_000_000)  # nothing is synced for a while

        async def fail() -> None:
            await asyncio.sleep(1)
            for name in machine.disk.list(f"{DATA}/{TOPIC}-0"):
                machine.disk.sync_path(f"{DATA}/{TOPIC}-0/{name}")
            machine.lose_power(keep=0)
            await machine.start()

        harness._main.create_task(fail())
        with pytest.raises((Abortable, Fenced)):
            await in_a_transaction(producer, transaction)
        await producer.begin_again()
        await in_a_transaction(producer, producer.new_transaction())

    found, history = harness.tell(versions, story)
    assert found == []
    assert [shown.value for shown in history.last[0].shown] == ["t1", "t3"]


async def in_a_transaction(producer: Scripted, transaction: Transaction) -> None:
    """Write one record in a transaction of its own."""
    for _ in range(10):
        try:
            await producer.add_partitions([0])
            break
        except Lost:
            await producer.client.pause()
    await producer.send(transaction, 0, transaction.name)
    await producer.end(transaction, committed=True)

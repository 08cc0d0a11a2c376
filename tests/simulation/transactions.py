"""Worlds of transactions: producers and their zombies, processors, readers, a broker that falls.

`python -m tests.simulation transactions SEED` tells the story of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.simulation.clients import Client, Lost
from tests.simulation.fault_injector import FaultInjector
from tests.simulation.history import History, Sent
from tests.simulation.invariants import OF_TRANSACTIONS, PROCESSOR_GROUPS
from tests.simulation.machine import Machine
from tests.simulation.members import EAGER, NEWER, Plan
from tests.simulation.network import Network
from tests.simulation.offsets import TOPIC, find_group, look_up
from tests.simulation.processors import Processor, Worker, new_worker
from tests.simulation.producers import (
    JAVA_3,
    JAVA_4,
    LIBRDKAFKA,
    PARTITIONS,
    Producer,
)
from tests.simulation.readers import Reader
from tests.simulation.world import Process, World

from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.records import Record

# A transaction may last this long, and its end a little longer (see docs on faults).
TIMEOUTS_MS = (1_500, 3_000, 6_000)
SETTLE_MS = 60_000
PRODUCERS_MAX = 5
LOOKS_MAX = 100


class Transactions:
    """One world with a few transactional ids, each used by one producer or by several."""

    NAME = "transactions"
    INVARIANTS = OF_TRANSACTIONS

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        self.history = History()
        self.network = Network(world)
        self.machine = Machine(
            world,
            self.network,
            {
                "transaction.state.log.num.partitions": 1,
                "group.initial.rebalance.delay.ms": 0,
            },
        )
        self.faults = FaultInjector(world, self.machine, self.network)
        self.faults.clients = self.processes
        self.producers: list[Producer] = []
        self.workers: list[Worker] = []
        self._names = 0
        self._versions = world.chance.choice(
            ((JAVA_4,), (JAVA_4,), (JAVA_3,), (LIBRDKAFKA,), (JAVA_4, JAVA_3, LIBRDKAFKA))
        )
        self._has_workers = world.happens(0.3)
        self._main = Process(world, "main")

    def run(self) -> None:
        """Let the whole story happen."""
        with self.machine.hardware():
            self.world.run(self._main, self._story())

    async def _story(self) -> None:
        await self.machine.start()
        await self.machine.create_topic(TOPIC, PARTITIONS)
        for _ in range(self.world.between(1, 3)):
            self.add_producer()
        plain = PlainProducer(self.process("plain"), self.network, self.history)
        Reader(self.process("reader"), self.network, PARTITIONS).follow(self.history)
        own = [self.add_producer, self.kill_producer] * 2
        await self.faults.act(self.world.between(2, 4), 3_000, own)
        await self.faults.heal()
        plain.calm = True
        for client in self._clients():
            client.calm = True
        await self._finish(plain.process)
        await self._read_all()
        if self.world.happens(0.5):
            # What clients were told must outlive a last crash.
            before = {p: [s.value for s in r.shown] for p, r in self.history.last.items()}
            self.machine.lose_power()
            await self.machine.start()
            await self._read_all()
            after = {p: [s.value for s in r.shown] for p, r in self.history.last.items()}
            if any(after[p][: len(values)] != values for p, values in before.items()):
                self.history.stuck.append(f"after the last crash {before} has become {after}")
        last = self.process("last")
        await self._in(last, self._look(last))

    # The end.

    async def _finish(self, plain: Process) -> None:
        """Let the writers come to the end of what they do."""
        end_us = self.world.now_us + SETTLE_MS * 1000
        while plain.alive or self.processes():
            if self.world.now_us > end_us:
                self.history.stuck.append(f"writers are not done after {SETTLE_MS} ms of peace")
                return
            await asyncio.sleep(0.25)

    async def _read_all(self) -> None:
        """Wait until no transaction is open, and read everything as a fresh reader."""
        end_us = self.world.now_us + SETTLE_MS * 1000
        while True:
            reader = Reader(self.process("last"), self.network, PARTITIONS)
            if await self._in(reader.process, reader.read_all()):
                break
            if self.world.now_us > end_us:
                self.history.stuck.append(
                    f"a transaction is open after {SETTLE_MS} ms of peace: the last stable offset "
                    "does not move on"
                )
                break
            await asyncio.sleep(0.5)
        self.history.last = {reading.partition: reading for reading in reader.readings}

    async def _look(self, process: Process) -> bool:
        client = Client(process, self.network)
        groups = {p.transactional_id: (0,) for p in self.producers if isinstance(p, Processor)}
        places: dict[str, tuple[int, ...]] = {**groups}
        places |= {worker.plan.group: tuple(range(PARTITIONS)) for worker in self.workers}
        for group, inputs in places.items():
            for _ in range(LOOKS_MAX):
                try:
                    await find_group(client, group)
                    if await look_up(client, self.history, group, inputs, NEWER.fetch):
                        break
                except Lost:
                    pass
                await client.pause()
            else:
                self.history.stuck.append(f"the offsets of {group} never become stable")
        return True

    async def _in(self, process: Process, work: Coroutine[Any, Any, bool]) -> bool:
        """Let a process do something; False if the broker could not be reached."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def go() -> None:
            try:
                done.set_result(await work)
            except Lost:
                done.set_result(False)

        process.create_task(go())
        return await done

    # Who takes part.

    def processes(self) -> list[Process]:
        """The clients that live."""
        return [client.process for client in self._clients() if client.process.alive]

    def _clients(self) -> list[Producer | Worker]:
        return [*self.producers, *self.workers]

    def process(self, name: str) -> Process:
        self._names += 1
        return Process(self.world, f"{name}-{self._names}")

    def add_producer(self) -> None:
        """A producer comes, perhaps while another one with its id is still there."""
        if len(self.processes()) >= PRODUCERS_MAX:
            return
        world = self.world
        if self._has_workers and (len(self.workers) < 2 or world.happens(0.5)):
            self._add_worker()
            return
        kind: type[Producer]
        if world.happens(0.5):
            kind, transactional_id = Producer, world.chance.choice(("writer-a", "writer-b"))
        else:
            kind, transactional_id = Processor, f"{PROCESSOR_GROUPS}{world.between(0, 1)}"
        process = self.process("producer")
        producer = kind(
            process,
            self.network,
            self.history,
            transactional_id,
            world.chance.choice(self._versions),
            world.chance.choice(TIMEOUTS_MS),
            strange=world.chance.choice((0.0, 0.1, 0.3)),
        )
        world.tell("faults", f"lets {process.name} begin as {transactional_id}", producer.versions)
        self.producers.append(producer)

    def _add_worker(self) -> None:
        """A program comes that shares its inputs with its like."""
        world = self.world
        strange = world.chance.choice((0.0, 0.1, 0.2))
        group = f"{PROCESSOR_GROUPS}group"
        plan = Plan(group, PARTITIONS, NEWER, (EAGER,), None, 1_200, 1_000, strange)
        versions = world.chance.choice(self._versions)
        process = self.process("worker")
        world.tell("faults", f"lets {process.name} begin in {group}", versions)
        # Longer than its session: who is slow loses its place before its transaction.
        timeout_ms = world.chance.choice((3_000, 6_000))
        self.workers.append(
            new_worker(process, self.network, self.history, plan, versions, timeout_ms, strange)
        )

    def kill_producer(self) -> None:
        """A producer dies in the middle of what it does."""
        alive = self.processes()
        if alive:
            process = self.world.chance.choice(alive)
            self.world.tell("faults", "kills", process.name)
            process.kill()


class PlainProducer:
    """Writes between the transactions, idempotently and outside of any."""

    def __init__(self, process: Process, network: Network, history: History) -> None:
        self.process = process
        self.client = Client(process, network)
        self.world = process.world
        self.history = history
        self.calm = False
        self._sequences: dict[int, int] = {}
        process.create_task(self.run())

    async def run(self) -> None:
        producer_id = -1
        while not self.calm:
            await self.client.pause(200, 3_000)
            try:
                if producer_id < 0:
                    request = InitProducerIdRequest(
                        transactional_id=None, transaction_timeout_ms=1_000
                    )
                    answer = await self.client.ask(request, InitProducerIdResponse, 4)
                    if answer.error_code:
                        continue
                    producer_id = answer.producer_id
                    self._sequences.clear()
                await self._send(producer_id)
            except Lost:
                # What became of it is not known: the next records are another producer's.
                producer_id = -1
        self.process.kill()

    async def _send(self, producer_id: int) -> None:
        partition = self.world.between(0, PARTITIONS - 1)
        sent = Sent(f"p{self.history.number()}", partition, self.world.now_us, None)
        self.history.sent.append(sent)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        batch = build_batch(
            [Record(0, 0, None, sent.value.encode())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        answer = await self.client.ask(
            ProduceRequest(
                acks=-1,
                timeout_ms=4_000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC,
                        partition_data=[
                            PartitionProduceData(index=partition, records=memoryview(batch))
                        ],
                    )
                ],
            ),
            ProduceResponse,
            9,
        )
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            raise Lost("refused")
        sent.offset = result.base_offset

"""Injects faults: crashes of the broker, cut connections, frozen processes, slow disks, clocks.

It acts for a while, then it lets everything heal, and what must happen can be waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.world import THREAD_US, Process, World

NORMAL_DELAY_US = (50, 1_500)
DOWNTIME_MS_MAX = 2_500


class FaultInjector:
    """Faults of one machine and its network, one after the other, by chance."""

    def __init__(self, world: World, machine: Machine, network: Network) -> None:
        self.world = world
        self.machine = machine
        self.network = network
        self.process = Process(world, "faults")
        # Processes of clients, for faults that befall one of them.
        self.clients: Callable[[], list[Process]] = list
        self._deeds: list[Callable[[], None]] = [
            self.cut_lines,
            self.cut_lines,
            self.freeze_broker,
            self.freeze_client,
            self.slow_disk,
            self.slow_network,
            self.step_clock,
        ]

    async def act(self, faults: int, pause_ms: int, more: list[Callable[[], None]]) -> None:
        """Let this many faults happen, each after a pause; `more` are a scenario's own."""
        deeds = self._deeds + more
        for _ in range(faults):
            await asyncio.sleep(self.world.between(0, pause_ms) / 1000)
            # A crash is what most depends on, so it is as likely as all else together.
            if self.world.happens(0.4):
                await self.crash()
            else:
                self.world.chance.choice(deeds)()

    async def heal(self) -> None:
        """Let everything be as it should be."""
        self.tell("heals everything")
        self.network.delay_us = NORMAL_DELAY_US
        self.machine.thread_us = None
        if self.machine.process is not None:
            self.machine.process.thread_us = THREAD_US
            self.machine.process.frozen_until_us = 0
        for line in self.network.lines:
            if line.is_cut:
                line.fall()
        if not self.machine.runs:
            await self.machine.start()

    async def crash(self) -> None:
        """End the broker in one of three ways, and start it again; it may fall more than once."""
        while True:
            kind = self.world.between(0, 5)
            if kind == 0:
                await self.machine.stop()
            elif kind <= 2:
                self.machine.kill()
            else:
                self.machine.lose_power()
            await asyncio.sleep(self.world.between(0, DOWNTIME_MS_MAX) / 1000)
            self.tell("starts the broker")
            if not self.world.happens(0.2):
                await self.machine.start()
                return
            # The next fall comes while it recovers.
            starting = self.process.create_task(self.machine.start())
            await asyncio.sleep(self.world.between(0, 20_000) / 1e6)
            if starting.done():
                return

    # One fault each.

    def cut_lines(self) -> None:
        lines = [line for line in self.network.lines if not line.is_over]
        for line in self.world.chance.sample(lines, k=self.world.between(0, len(lines))):
            self.tell("cuts the line of", line.client.name)
            line.cut()

    def freeze_broker(self) -> None:
        if self.machine.process is not None:
            ms = self.world.between(100, 6_000)
            self.tell("freezes the broker for", ms, "ms")
            self.machine.process.freeze(ms)

    def freeze_client(self) -> None:
        clients = self.clients()
        if clients:
            client = self.world.chance.choice(clients)
            ms = self.world.between(500, 12_000)
            self.tell("freezes", client.name, "for", ms, "ms")
            client.freeze(ms)

    def slow_disk(self) -> None:
        most_us = self.world.chance.choice((2_000, 100_000, 1_000_000, 8_000_000))
        self.tell("lets the disk take up to", most_us, "us")
        self.machine.thread_us = (5, most_us)
        if self.machine.process is not None:
            self.machine.process.thread_us = self.machine.thread_us

    def slow_network(self) -> None:
        most_us = self.world.chance.choice((1_500, 50_000, 1_000_000, 6_000_000))
        self.tell("lets messages take up to", most_us, "us")
        self.network.delay_us = (50, most_us)

    def step_clock(self) -> None:
        step_ms = self.world.chance.choice((-3_600_000, -5_000, 700, 60_000, 3_600_000))
        self.tell("sets the clock by", step_ms, "ms")
        self.machine.clock.step_ms += step_ms

    def tell(self, *words: object) -> None:
        self.world.tell("faults", *map(str, words))

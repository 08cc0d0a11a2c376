"""A broker in a thread whose disk does as it is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from tests.storage.faulty_files import FaultyFileSystem

from headrace.broker import Broker
from headrace.config import Settings
from headrace.testing import BrokerThread


class FaultyBroker(BrokerThread):
    """`BrokerThread` on a FaultyFileSystem over the real disk."""

    def __init__(self, data_dir: Path, settings: Mapping[str, object] | None = None):
        super().__init__(settings, data_dir=data_dir)
        self.disk = FaultyFileSystem()
        self._gates: list[threading.Event] = []

    def hold(self, operation: str, path_has: str) -> threading.Event:
        """Let the next such call wait until the event is set, or the broker is stopped."""
        gate = self.disk.hold(operation, path_has=path_has)
        self._gates.append(gate)
        return gate

    def stop(self) -> None:
        for gate in self._gates:
            gate.set()
        super().stop()

    async def _start(self, settings: Settings) -> None:
        broker = Broker(settings, files=self.disk, hooks=self.faults)
        await broker.start()
        self._broker = broker
        self.port = broker.port

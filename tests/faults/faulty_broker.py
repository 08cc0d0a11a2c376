"""A broker in a thread whose disk does as it is told."""

from __future__ import annotations

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

    async def _start(self, settings: Settings) -> None:
        broker = Broker(settings, files=self.disk, hooks=self.faults)
        await broker.start()
        self._broker = broker
        self.port = broker.port

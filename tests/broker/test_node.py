"""A node's thread pools are as large as its settings say."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker
from tests.waiting import WAIT_SECONDS

from headrace.storage.log.flush import Flush


class Counted:
    """Calls that block until they are released; knows how many run at once."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._full = threading.Event()
        self.running = 0
        self.most = 0

    def __call__(self) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running == self._expected:
                self._full.set()
        # One thread too many would come in while the expected ones are held here.
        self._full.wait(WAIT_SECONDS)
        self._released.wait(0.05)
        with self._lock:
            self.running -= 1


@pytest.mark.parametrize("threads", [1, 3])
def test_num_network_threads_read_at_a_time(tmp_path: Path, threads: int) -> None:
    reads = Counted(threads)

    async def scenario(asker: Asker) -> None:
        tasks = [
            asker.node.loop.create_task(asker.node.run_read(reads)) for _ in range(threads + 2)
        ]
        for task in tasks:
            await task

    with_broker(tmp_path, scenario, {"num.network.threads": threads})
    assert reads.most == threads


@pytest.mark.parametrize("threads", [1, 3])
def test_num_io_threads_sync_at_a_time(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Counted(threads)
    run = Flush.run

    def counted(flush: Flush) -> None:
        syncs()
        run(flush)

    async def scenario(asker: Asker) -> None:
        await asker.create("t", partitions=threads + 2)
        with monkeypatch.context() as patch:
            patch.setattr(Flush, "run", counted)
            tasks = [
                asker.node.loop.create_task(asker.produce("t", index, b"value"))
                for index in range(threads + 2)
            ]
            for task in tasks:
                await task

    with_broker(tmp_path, scenario, {"num.io.threads": threads})
    assert syncs.most == threads

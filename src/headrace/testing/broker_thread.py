"""A real broker in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from headrace.broker import Broker
from headrace.broker.clock import Clock
from headrace.config import BROKER_ROWS, Settings
from headrace.testing.faults import Faults

START_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 30.0

# Tests do not wait for members that will not come, and need few coordinators.
TEST_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}

T = TypeVar("T")


class BrokerThread:
    """A broker on a free loopback port with fault hooks; a context manager.

    Data goes to a temporary folder, removed at the end, unless `data_dir` is given. Settings are
    broker settings with Kafka's names. `stop()` then `start()` is a restart with the same data on
    the same port.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: Path | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.faults = Faults()
        self.clock = clock
        self.host = "127.0.0.1"
        self.port = 0
        self._given = {**TEST_SETTINGS, **(settings or {})}
        self._temporary = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="headrace-"))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: Broker | None = None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def broker(self) -> Broker:
        """The broker itself; touch it only through `call` or `run`."""
        if self._broker is None:
            raise RuntimeError("the broker is not running")
        return self._broker

    def start(self) -> Self:
        """Start the broker; clients may connect when this returns."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        settings = Settings.parse(
            BROKER_ROWS,
            {
                "listeners": f"PLAINTEXT://{self.host}:{self.port}",
                "log.dir": str(self.data_dir),
                **self._given,
            },
        )
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-broker", daemon=True
        )
        self._thread.start()
        try:
            self.run(self._start(settings), START_TIMEOUT_SECONDS)
        except BaseException:
            self._end_thread()
            raise
        return self

    def stop(self) -> None:
        """Drain and close the broker as SIGTERM does; the data stays. May be called twice."""
        if self._thread is None:
            return
        try:
            self.run(self.broker.close(), STOP_TIMEOUT_SECONDS)
        finally:
            self._broker = None
            self._end_thread()

    def restart(self) -> Self:
        """Stop and start again, on the same port and data."""
        self.stop()
        return self.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 10.0) -> T:
        """Run a coroutine on the broker's loop and return its result."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the broker is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function on the broker's loop and return its result."""

        async def call() -> T:
            return function(*args)

        return self.run(call())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        try:
            self.stop()
        finally:
            if self._temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    async def _start(self, settings: Settings) -> None:
        broker = Broker(settings, clock=self.clock, hooks=self.faults)
        await broker.start()
        self._broker = broker
        self.port = broker.port

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_SECONDS)
        self._loop.close()
        self._loop = self._thread = None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

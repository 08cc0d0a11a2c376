"""The brokers under test behind one face: start in a folder, address, process id, stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests import apache_kafka

from benchmarks.process import started_at
from headrace.cli.common.version import version

# By default a deleted topic's files stay for a minute or more; the disk is wanted back sooner.
SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}

_STOP_SECONDS_MAX = 30.0
_SPAWN_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Running:
    """A started broker; `started_at` is the Unix time at which its process began."""

    bootstrap: str
    pid: int
    started_at: float
    folder: Path


class Peer(Protocol):
    """A broker that can be started and stopped, one at a time."""

    name: str
    title: str

    def start(self, folder: Path) -> Running:
        """Begin to start in a folder and return at once, before it answers."""
        ...

    def stop(self, *, kill: bool = False) -> None:
        """Stop cleanly, or by SIGKILL, and wait for the end; the folder stays."""
        ...


class Headrace:
    """This checkout's broker, as `headrace broker` starts it."""

    name = "headrace"

    def __init__(self, settings: tuple[str, ...] = ()) -> None:
        self.title = f"Headrace {version()}"
        self._settings = (*(f"{name}={value}" for name, value in SETTINGS.items()), *settings)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path) -> Running:
        folder.mkdir(parents=True, exist_ok=True)
        bootstrap = f"127.0.0.1:{_free_port()}"
        command = [sys.executable, "-m", "headrace", "broker", "--listen", bootstrap]
        command += ["--data-dir", str(folder / "data")]
        command += [part for setting in self._settings for part in ("--set", setting)]
        begun = time.time()
        with (folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return Running(bootstrap, self._process.pid, begun, folder)

    def stop(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
            process.wait()
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"Headrace did not stop within {_STOP_SECONDS_MAX:.0f} s") from None
        if code not in (0, -signal.SIGTERM):
            raise RuntimeError(f"Headrace ended with {code}")


class Kafka:
    """Apache Kafka: one KRaft node, default settings but for `SETTINGS`, 1 GB heap."""

    name = "kafka"
    title = f"Apache Kafka {apache_kafka.VERSION}"

    def __init__(self) -> None:
        self._broker: apache_kafka.ApacheKafka | None = None
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="kafka-start")

    def start(self, folder: Path) -> Running:
        broker = apache_kafka.ApacheKafka(settings=SETTINGS, data_dir=folder, heap="1g")
        self._broker = broker
        # Its start waits for the first answer, which is what the caller wants to time.
        starting = self._waiter.submit(broker.start)
        pid = _await(lambda: starting.done() or _has_pid(broker), lambda: broker.pid)
        return Running(broker.bootstrap, pid, started_at(pid), folder)

    def stop(self, *, kill: bool = False) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            if kill:
                os.kill(broker.pid, signal.SIGKILL)
            broker.stop()


def _has_pid(broker: apache_kafka.ApacheKafka) -> bool:
    try:
        return broker.pid > 0
    except RuntimeError:
        return False


def _await(condition: Callable[[], bool], then: Callable[[], int]) -> int:
    deadline = time.monotonic() + _SPAWN_SECONDS_MAX
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return then()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port

"""Apache ZooKeeper itself, from Maven Central: one server, and a forwarder to cut connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.apache_kafka import QUICK_JVM
from tests.jars import jars_with_dependencies
from tests.waiting import wait_until

VERSION = "3.9.4"
# Sessions may be as short as two ticks.
TICK_MS = 100
_STOP_SECONDS_MAX = 20.0


class ZooKeeper:
    """A server with a data folder of its own; it can be stopped, frozen and started again."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-zookeeper-"))
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._config = self._folder / "zoo.cfg"
        self._config.write_text(
            f"tickTime={TICK_MS}\ndataDir={self._folder}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )

    def start(self) -> None:
        """Start the server and return when it answers."""
        # Its server needs two packages that it does not name, and is silent without a logger.
        jars = jars_with_dependencies(
            ("org.apache.zookeeper", "zookeeper", VERSION),
            ("io.dropwizard.metrics", "metrics-core", "4.2.30"),
            ("org.xerial.snappy", "snappy-java", "1.1.10.7"),
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        places = os.pathsep.join(map(str, jars))
        self._process = subprocess.Popen(
            ["java", *QUICK_JVM, "-Xmx256m", "-cp", places, main, str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(self._answers, "ZooKeeper answers")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the server; SIGKILL returns when it is gone."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait(_STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "ZooKeeper ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as it:
            it.settimeout(5)
            it.sendall(b"srvr")
            return b"Zookeeper version" in it.recv(4096)
        return False


class Forwarder:
    """A port that leads to the server until it is cut, as a broken network would."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def cut(self) -> None:
        """Break all connections without a goodbye, and take no more."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, other_writer}
        with contextlib.suppress(OSError):
            await asyncio.gather(_pump(reader, other_writer), _pump(other_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

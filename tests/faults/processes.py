"""A broker as a process of its own, to be killed."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS = 60.0


def free_port() -> int:
    """A port that nobody listens on now; restarts need the same one again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class BrokerProcess:
    """`headrace broker` on a fixed port; killed without mercy when the test is over."""

    def __init__(self, data_dir: Path, *, settings: Sequence[str] = ()):
        self.data_dir = data_dir
        self.port = free_port()
        self.settings = list(settings)
        self.errors = data_dir.parent / f"{data_dir.name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        #: Seconds from each start to its ready line.
        self.start_seconds: list[float] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it to be ready."""
        assert not self.alive
        command = [sys.executable, "-m", "headrace", "broker"]
        command += ["--listen", self.bootstrap]
        if not any(setting.startswith("log.dirs=") for setting in self.settings):
            command += ["--data-dir", str(self.data_dir)]
        for setting in self.settings:
            command += ["--set", setting]
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        self._launched_s = time.monotonic()

    def wait_ready(self) -> None:
        """Wait for the ready line; AssertionError with what the process said when it ends."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline_s = time.monotonic() + START_SECONDS
        descriptor = self._process.stdout.fileno()
        said = b""
        while b"\n" not in said:
            left_s = max(0.0, deadline_s - time.monotonic())
            # Not select(): it takes no descriptor above 1,023, and a long run has many open.
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            piece = os.read(descriptor, 4096) if poller.poll(left_s * 1000) else b""
            if not piece:
                raise AssertionError(f"the broker is not ready: {self.complaint()}")
            said += piece
        assert said.startswith(b"ready "), said
        self.start_seconds.append(time.monotonic() - self._launched_s)

    def start(self) -> Self:
        self.launch()
        self.wait_ready()
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(START_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def resident_bytes(self) -> int:
        """The memory of the process, from the kernel."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def complaint(self) -> str:
        return self.errors.read_text()[-2000:] if self.errors.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.alive:
            self.kill()

"""A server of `headrace` processes: one that has imported everything forks each of them.

A test that kills thirty processes cannot wait for each to import its libraries first. The server
has no threads when it forks, and what it forks is the command line tool as ever.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.waiting import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
RUN = ("run", "tests.faults.shop:app")
_READ_BYTES = 65_536


class Child:
    """A process of the server, known by its number; `status` is negative for a signal."""

    def __init__(self, fork_server: ForkServer, pid: int) -> None:
        self._fork_server = fork_server
        self.pid = pid
        self.status: int | None = None

    def wait(self, timeout_s: float = WAIT_SECONDS) -> int:
        """Wait for its end; TimeoutError if that does not come."""
        return self._fork_server.wait(self, timeout_s)

    def signal(self, number: int) -> None:
        """Send a signal if it still lives."""
        if self.status is None:
            os.kill(self.pid, number)


class ForkServer:
    """Starts processes in folders of their own; all are killed with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.fork_server"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._changed = threading.Condition()
        self._children: dict[int, Child] = {}
        self._born: list[Child] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, folder: Path, arguments: Sequence[str], log: Path) -> Child:
        """Run `headrace ARGUMENTS` in a folder; its words go to the end of a file."""
        assert self._process.stdin is not None
        order = {"folder": str(folder), "arguments": list(arguments), "log": str(log)}
        with self._changed:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            assert self._changed.wait_for(lambda: bool(self._born), WAIT_SECONDS)
            return self._born.pop()

    def wait(self, child: Child, timeout_s: float) -> int:
        """The status of a child once it has ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: child.status is not None, timeout_s):
                raise TimeoutError(f"process {child.pid} did not end within {timeout_s:.0f} s")
            assert child.status is not None
            return child.status

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in self._children.values():
            child.signal(signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_SECONDS)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pid, status = json.loads(line)
            with self._changed:
                if status is None:
                    self._children[pid] = Child(self, pid)
                    self._born.append(self._children[pid])
                else:
                    self._children[pid].status = status
                self._changed.notify_all()


def main() -> None:
    """Fork what is asked for on standard input; tell of births and ends on standard output."""
    # Everything that an app imports, and nothing that starts a thread.
    import tests.faults.shop  # noqa: F401

    import headrace.cli.app
    import headrace.client.consumer.consumer
    import headrace.client.producer
    import headrace.handlers.background
    import headrace.handlers.runner
    import headrace.store.store  # noqa: F401

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    threads = threading.active_count()
    assert threads == 1, f"{threads} threads would not survive a fork"
    _serve(reading)


def _serve(woken: int) -> None:
    import select

    lines = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, _READ_BYTES)
            _tell_ends()
        if 0 in ready:
            piece = os.read(0, _READ_BYTES)
            if not piece:
                return
            *whole, lines = (lines + piece).split(b"\n")
            for line in whole:
                _fork(json.loads(line))


def _fork(order: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        _tell(pid, None)
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, target)
    os.chdir(order["folder"])
    from tests.faults import shop

    from headrace import cli

    try:
        if order["arguments"] != list(RUN):
            # The app prepares its process itself.
            shop.prepare(shop.ShopConfig.read(Path()))
        code = cli.run_command(order["arguments"])
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _tell_ends() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell(pid, os.waitstatus_to_exitcode(status))


def _tell(pid: int, status: int | None) -> None:
    os.write(1, json.dumps([pid, status]).encode() + b"\n")


if __name__ == "__main__":
    main()

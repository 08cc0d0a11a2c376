"""PostgreSQL itself, Debian's: a server of the test's own on a Unix socket."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.unprivileged import as_nobody, folder_of

USER = "postgres"
_START_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 30.0
# A server that loses the machine's power is not tested here, one that is killed is: the kernel
# keeps what was written.
_SETTINGS = {"fsync": "off", "listen_addresses": "", "shared_buffers": "32MB"}


def programs() -> Path | None:
    """The folder with PostgreSQL's programs, the newest if there are several."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4])
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


class Postgres:
    """A server in a temporary folder; a context manager."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: dict[str, Any] = as_nobody(USER)
        found = programs()
        if found is None:
            raise RuntimeError("PostgreSQL is not installed; try: apt-get install postgresql")
        self._programs = found
        self.folder = folder_of(USER, "headrace-pg-")

    @property
    def pid(self) -> int:
        assert self._process is not None, "PostgreSQL is not running"
        return self._process.pid

    def start(self) -> Postgres:
        """Make the server's files if they are not there, start it and wait until it answers."""
        data = self.folder / "data"
        if not (data / "PG_VERSION").exists():
            self._run("initdb", "-D", str(data), "-U", USER, "-A", "trust", "-N", "-E", "UTF8")
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(self._programs / "postgres"), "-D", str(data), f"-k{self.folder}", *options]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, **self._as_user
            )
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self._answers():
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
            text = (self.folder / "server.log").read_text(errors="replace")
            raise RuntimeError(f"PostgreSQL did not start:\n{text[-4000:]}")
        return self

    def stop(self, how: int = signal.SIGQUIT) -> None:
        """Stop: at once as a crash does (SIGQUIT), or rolling back first (SIGINT)."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Crash and come back, on the same files and socket."""
        self.stop()
        self.start()

    def database(self) -> str:
        """The URL of something as good as a new database: a schema of its own, made in no time."""
        name = f"t{next(self._numbers)}"
        self.sql(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    @property
    def url(self) -> str:
        """The URL of the server's first database."""
        return f"postgresql+psycopg://{USER}@/postgres?host={self.folder}"

    def sql(self, statement: str) -> None:
        """Run one statement outside a transaction."""
        import psycopg

        with psycopg.connect(host=str(self.folder), user=USER, autocommit=True) as connection:
            connection.execute(statement.encode())

    def __enter__(self) -> Postgres:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            timeout=_START_SECONDS_MAX,
            check=False,
            **self._as_user,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        import psycopg

        try:
            self.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

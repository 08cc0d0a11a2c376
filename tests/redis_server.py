"""Redis itself: a server of the test's own on a Unix socket."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType

from tests.unprivileged import as_nobody, folder_of

USER = "redis"
_START_SECONDS_MAX = 20.0


class RedisServer:
    """A server without files of its own: what it knows goes with it; a context manager."""

    def __init__(self, options: Sequence[str] = ()) -> None:
        self._options = tuple(options)
        if shutil.which("redis-server") is None:
            raise RuntimeError("Redis is not installed; try: apt-get install redis-server")
        self.folder = folder_of(USER, "headrace-redis-")
        self._socket = self.folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What redis-py's `from_url` takes."""
        return f"unix://{self._socket}"

    def start(self) -> RedisServer:
        """Start empty and wait until it answers."""
        command = ["redis-server", "--port", "0", "--unixsocket", str(self._socket)]
        # Root starts it as another user and has to reach it.
        command += ["--unixsocketperm", "777", "--save", "", "--dir", str(self.folder)]
        command += self._options
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_nobody(USER)
        )
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self._answers():
            try:
                self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
            raise RuntimeError("Redis did not start")
        return self

    def stop(self) -> None:
        """End it at once; a restart knows nothing any more."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> RedisServer:
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

    def _answers(self) -> bool:
        import redis

        client = redis.Redis.from_url(self.url)
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
        finally:
            client.close()

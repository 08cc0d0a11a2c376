"""How a process under test says that it is at a step, and waits until it may go on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class StepSignal:
    """Listens for processes that have come to a step."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @contextmanager
    def answer(self, timeout_s: float) -> Iterator[str]:
        """The step of the next process, which goes on when the block ends; "" if none comes."""
        self._listener.settimeout(timeout_s)
        try:
            line, _ = self._listener.accept()
        except TimeoutError:
            yield ""
            return
        with line, line.makefile("rb") as words:
            yield words.readline().decode().strip()
            line.sendall(b".")

    def __enter__(self) -> StepSignal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()

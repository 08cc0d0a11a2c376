"""A process of the shop, that is killed or kills itself."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults.fork_server import ForkServer

NOTE = "died-at"
# How often, and how long each time, a death is waited for before there is more to do.
DEATH_TURNS = 20
DEATH_TURN_SECONDS = 5.0


class ShopProcess:
    """`headrace run tests.faults.shop:app`, or another command of the shop."""

    def __init__(self, fork_server: ForkServer, folder: Path, arguments: Sequence[str]):
        self.note = folder / NOTE
        self.note.unlink(missing_ok=True)
        self._log = folder / "app.log"
        self._child = fork_server.start(folder, arguments, self._log)

    def kill(self) -> None:
        self._child.signal(signal.SIGKILL)
        self._child.wait()

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self._child.signal(signal.SIGTERM)
        return self._child.wait()

    def wait_died(self, step: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the process has killed itself at a step, with more for it to do meanwhile."""
        for _ in range(DEATH_TURNS):
            try:
                status = self._child.wait(DEATH_TURN_SECONDS)
                break
            except TimeoutError:
                meanwhile()
        else:
            raise AssertionError(f"it did not die at {step}: {self.complaint()}")
        died_at = self.note.read_text() if self.note.exists() else "nowhere"
        assert status == -signal.SIGKILL, self.complaint()
        assert died_at == step, f"it died at {died_at}, not at {step}"

    def complaint(self) -> str:
        """The last words of the process."""
        return self._log.read_text()[-3000:] if self._log.exists() else ""

"""Homes: a folder for each version of a pipeline, with its state, its lock, its checkpoint."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.spark.errors import PipelineError

STATE = "state.json"
LOCK = "lock"
STOP = "stop"
# The state of a version whose checkpoint and output are being deleted.
DROPPING = "dropping"


class Home:
    """What is known of one version of a pipeline on this machine."""

    def __init__(self, root: Path, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.folder = root / name / f"v{version}"

    @property
    def checkpoint(self) -> str:
        """Where the checkpoint is unless it is kept elsewhere."""
        return str((self.folder / "checkpoint").resolve())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Held while the pipeline runs; PipelineError if it runs already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(
                    f"{self.name} version {self.version} runs already",
                    f"headrace pipeline stop {self.name} --version {self.version}",
                ) from None
            (self.folder / STOP).unlink(missing_ok=True)
            yield

    @property
    def is_running(self) -> bool:
        """Whether a process holds it; a killed one does not."""
        if not (self.folder / LOCK).exists():
            return False
        with (self.folder / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def write_state(self, state: dict[str, Any]) -> None:
        """Put the state in place of the old one at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f"{STATE}.{uuid.uuid4().hex}"
        aside.write_text(json.dumps(state), encoding="utf-8")
        os.replace(aside, self.folder / STATE)

    def state(self) -> dict[str, Any]:
        """The state as it was written last; what was killed is said to be."""
        path = self.folder / STATE
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if found.get("state") in ("running", "starting", "waiting", "restarting"):
            found["state"] = found["state"] if self.is_running else "killed"
        return {"name": self.name, "version": self.version, **found}

    def ask_to_stop(self) -> None:
        """Ask the process that holds it to stop."""
        (self.folder / STOP).touch()

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether somebody asked."""
        return (self.folder / STOP).exists()


def homes(root: Path, name: str | None = None) -> list[Home]:
    """All that is known below a folder, by name and version."""
    found = []
    for state in root.glob(f"{name or '*'}/v*/{STATE}"):
        number = state.parent.name.removeprefix("v")
        if number.isdigit():
            found.append(Home(root, state.parent.parent.name, int(number)))
    return sorted(found, key=lambda home: (home.name, home.version))

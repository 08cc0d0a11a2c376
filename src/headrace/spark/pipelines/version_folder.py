"""The folder of one version of a pipeline, with its state, its lock and its checkpoint."""

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


class VersionFolder:
    """What this machine knows of one version of a pipeline."""

    def __init__(self, root: Path, name: str, version: int) -> None:
        self.name = name
        self.version = version
        self.folder = root / name / f"v{version}"

    @property
    def checkpoint(self) -> str:
        """The checkpoint, unless it is kept elsewhere."""
        return str((self.folder / "checkpoint").resolve())

    def checkpoint_in(self, base: str | None) -> str:
        """The checkpoint below a folder or Hadoop URL; in this folder if that is None."""
        if base is None:
            return self.checkpoint
        return f"{base.rstrip('/')}/{self.name}/v{self.version}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the version while it runs; PipelineError if it is running already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(
                    f"{self.name} version {self.version} is running already",
                    f"headrace pipeline stop {self.name} --version {self.version}",
                ) from None
            (self.folder / STOP).unlink(missing_ok=True)
            yield

    @property
    def is_running(self) -> bool:
        """Whether a process holds its lock; a killed process does not."""
        if not (self.folder / LOCK).exists():
            return False
        with (self.folder / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace the state atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f"{STATE}.{uuid.uuid4().hex}"
        aside.write_text(json.dumps(state), encoding="utf-8")
        os.replace(aside, self.folder / STATE)

    def state(self) -> dict[str, Any]:
        """The last state; `killed` if its process ended without writing another."""
        path = self.folder / STATE
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        if found.get("state") in ("running", "starting", "waiting", "restarting"):
            found["state"] = found["state"] if self.is_running else "killed"
        return {"name": self.name, "version": self.version, **found}

    def ask_to_stop(self) -> None:
        """Ask the process that runs it to stop."""
        (self.folder / STOP).touch()

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether the running process was asked to stop."""
        return (self.folder / STOP).exists()


def known_versions(root: Path, name: str | None = None) -> list[VersionFolder]:
    """All versions with a state below a folder, sorted by name and version."""
    found = []
    for state in root.glob(f"{name or '*'}/v*/{STATE}"):
        number = state.parent.name.removeprefix("v")
        if number.isdigit():
            found.append(VersionFolder(root, state.parent.parent.name, int(number)))
    return sorted(found, key=lambda each: (each.name, each.version))

"""The load generator: built from `loadgen/` by Go into a cache, run as a process."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.asking import BenchFailed

SOURCE = Path(__file__).parent / "loadgen"
CACHE = Path.home() / ".cache" / "headrace-bench"

Answer = dict[str, Any]


class GeneratorError(BenchFailed):
    """The generator could not be built, or found a wrong answer from the broker."""


def build() -> Path:
    """The generator's program, compiled when its sources have changed."""
    digest = hashlib.sha256()
    for source in sorted([*SOURCE.glob("*.go"), SOURCE / "go.mod"]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    program = CACHE / f"loadgen-{digest.hexdigest()[:16]}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise GeneratorError("go 1.19+ is needed to build the load; try: apt-get install golang-go")
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(".building")
    done = subprocess.run(
        [go, "build", "-buildvcs=false", "-o", str(fresh), "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise GeneratorError(f"go build failed:\n{done.stdout}{done.stderr}")
    fresh.rename(program)
    return program


class Generator:
    """Runs the load generator against one broker address."""

    def __init__(self, program: Path, bootstrap: str) -> None:
        self._program = program
        self._bootstrap = bootstrap

    def command(self, mode: str, **flags: object) -> list[str]:
        """The command line of a mode; `bytes_max=1` is the flag `-bytes-max=1`."""
        rows = [f"-{name.replace('_', '-')}={_flag(value)}" for name, value in flags.items()]
        return [str(self._program), mode, f"-bootstrap={self._bootstrap}", *rows]

    def run(self, mode: str, **flags: object) -> Answer:
        """Run one mode to its end; the first wrong answer of the broker is a `GeneratorError`."""
        command = self.command(mode, **flags)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return _answer(command, done.returncode, done.stdout, done.stderr)

    def hold(self, connections: int) -> Held:
        """Open idle connections and hold them until `Held.release`."""
        return Held(self.command("idle", connections=connections))


class Held:
    """Idle connections that are open from construction to `release`."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.release()

    def release(self) -> Answer:
        """Have every connection answer once more, then close them all."""
        out, err = self._process.communicate()
        return _answer(self._command, self._process.returncode, out, err)


def _flag(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _answer(command: list[str], code: int, out: str, err: str) -> Answer:
    if code != 0:
        raise GeneratorError(f"{' '.join(command[1:])}\n{err.strip() or f'ended with {code}'}")
    answer: Answer = json.loads(out.splitlines()[-1])
    return answer

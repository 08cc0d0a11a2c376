"""An environment for the rival that needs a newer Python than the checkout's own."""

from __future__ import annotations

import filecmp
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements-dev.lock"
OLDEST = (3, 12)
PACKAGE = "pyrallel_consumer"
_INSTALL_SECONDS_MAX = 900


class NoEnvironment(Exception):
    """No Python of the wanted age, or the packages cannot be had; the text says which."""


def python_for_pyrallel(cache: Path) -> Path:
    """A Python that has pyrallel-consumer: this one, or one with an environment in the cache.

    The development lock names it for Python 3.12 on, so every rival has the same confluent-kafka.
    """
    if importlib.util.find_spec(PACKAGE) is not None:
        return Path(sys.executable)
    folder = cache / "rivals"
    python = folder / "bin" / "python"
    stamp = folder / LOCK.name
    if stamp.is_file() and filecmp.cmp(stamp, LOCK, shallow=False):
        return python
    base = next(_new_enough(), None)
    if base is None:
        raise NoEnvironment("pyrallel-consumer needs Python 3.12 or newer, and none was found")
    shutil.rmtree(folder, ignore_errors=True)
    _run(str(base), "-m", "venv", str(folder))
    uv = shutil.which("uv")
    install = (
        [uv, "pip", "install", "--quiet", "--python", str(python)]
        if uv
        else [str(python), "-m", "pip", "install", "--quiet"]
    )
    _run(*install, "--require-hashes", "-r", str(LOCK))
    shutil.copy(LOCK, stamp)
    return python


def _new_enough() -> Iterator[Path]:
    """Pythons of the wanted age: on the path, then pyenv's, which only one of is on the path."""
    names = [f"python3.{minor}" for minor in range(15, OLDEST[1] - 1, -1)]
    found = [Path(place) for name in names if (place := shutil.which(name))]
    found += sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"))
    wanted = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    for python in found:
        if subprocess.run([python, "-c", wanted], capture_output=True, check=False).returncode == 0:
            yield python


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS_MAX
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NoEnvironment(f"{' '.join(command[:4])} ... failed: {said[-1] if said else ''}")

"""A standalone Spark cluster of this machine: a master and two workers, each a process."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headrace.spark.sessions import home_without_zip

CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
WORKERS = ("worker1", "worker2")
START_SECONDS = 300.0
LOOK_SECONDS = 0.2
# What a driver has to be told of it.
SETTINGS = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}


@dataclass(frozen=True)
class Cluster:
    """Where its master is, and the processes of its workers."""

    url: str
    workers: tuple[int, ...]


PLAIN = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def quick() -> dict[str, str]:
    """Variables by which the Pythons of a cluster and its drivers start quickly."""
    with home_without_zip():
        return {**PLAIN, **os.environ}


@contextmanager
def spark_cluster(folder: Path, variables: dict[str, str] = PLAIN) -> Iterator[Cluster]:
    """A cluster whose processes leave their files in a folder; gone at the end."""
    parts = [
        _start(
            folder, variables, "master", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
        )
    ]  # fmt: skip

    try:
        url = _wait_for(folder / "master.log", r"spark://[\w.]+:[1-9]\d*", parts[0])
        parts += [
            _start(
                folder, variables, name, "org.apache.spark.deploy.worker.Worker",
                "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(folder / name), url,
            )
            for name in WORKERS
        ]  # fmt: skip
        for name, part in zip(WORKERS, parts[1:], strict=True):
            _wait_for(folder / f"{name}.log", "Successfully registered with master", part)
        yield Cluster(url, tuple(part.pid for part in parts[1:]))
    finally:
        for part in parts:
            part.terminate()
        for part in parts:
            part.wait(60)


def _wait_for(log: Path, pattern: str, part: subprocess.Popen[bytes]) -> str:
    """What a part says when it is ready."""
    deadline_s = time.monotonic() + START_SECONDS
    while not (found := re.search(pattern, log.read_text(errors="replace"))):
        assert time.monotonic() < deadline_s, f"{log.name}: {log.read_text()[-1000:]}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"it ended with {part.wait(LOOK_SECONDS)}: {log.read_text()}")
    return found[0]


def _start(
    folder: Path, variables: dict[str, str], name: str, *arguments: str
) -> subprocess.Popen[bytes]:
    """Start a part of a Spark cluster; what it says goes to a file."""
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(CLASS), *arguments],
            cwd=folder,
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

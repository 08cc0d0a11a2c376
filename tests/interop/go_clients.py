"""Builds the Go programs once into the cache outside the repository."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.interop.programs import HERE, build, need
from tests.jars import CACHE

SOURCES = HERE / "go"


def go_program(name: str) -> Path:
    """The program of a client, built from `go/NAME` when its sources have changed."""
    need("go")
    _need_a_go_that_fetches_newer_ones()
    digest = hashlib.sha256()
    for source in sorted(SOURCES.rglob("*.*")):
        digest.update(source.read_bytes())
    program = CACHE / "go" / f"{name}-{digest.hexdigest()[:16]}"
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            build(["go", "build", "-o", str(program), f"./{name}"], SOURCES, dict(os.environ))
    return program


def _need_a_go_that_fetches_newer_ones() -> None:
    """From 1.21 on, Go fetches by itself the version that go.mod asks for."""
    said = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go1\.(\d+)", said)
    if found is None or int(found[1]) < 21:
        pytest.skip(f"Go 1.21 or newer is needed, here is {said.strip()}")

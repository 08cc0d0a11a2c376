"""KafkaJS."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

import pytest
from tests.interop.cases import Case, cases_without
from tests.interop.programs import ALL_CASES, HERE, Report, build, need, run_program
from tests.interop.stage import Stage
from tests.interop.transaction_cases import BEFORE_KIP_890
from tests.jars import CACHE

SOURCES = HERE / "node"
LACKS = {
    "cooperative": "has no assignor for it",
    "static": "has no instance ids",
    "static-fenced": "has no instance ids",
    "regex-new-topic": "looks for topics only when it subscribes",
    **BEFORE_KIP_890,
}
LACKS_SHAPES = {"null header": "fails to send it"}
CASES = cases_without(LACKS, ALL_CASES)


@pytest.fixture(scope="module")
def report(stage: Stage) -> Report:
    need("node", "npm")
    command = ["node", str(SOURCES / "interop.js")]
    environment = {**os.environ, "NODE_PATH": str(_modules())}
    return run_program(
        stage, "kafkajs", CASES, command, lacks=LACKS_SHAPES, environment=environment
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kafkajs(case: Case, report: Report) -> None:
    report.check(case)


def _modules() -> Path:
    """The packages of the lock file, installed once into the cache outside the repository."""
    digest = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = CACHE / "node" / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "node_modules" / ".package-lock.json").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, folder)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            build(command, folder, dict(os.environ))
    return folder / "node_modules"

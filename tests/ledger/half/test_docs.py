"""The page on half messages and its example print what they say."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.test_docs import examples, matches
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.ledger.half.machine import HalfLimits
from headrace.ledger.half.service import half_service, half_statuses

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 60


@pytest.fixture
def settings(broker: BrokerThread) -> Iterator[dict[str, object]]:
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    # Nobody is asked while a busy machine comes from one command to the next.
    service = half_service(settings, limits=HalfLimits(first_check_ms=600_000))
    service.start()
    assert service.wait_ready(WAIT_SECONDS)
    yield settings
    service.stop()


def test_the_page(broker: BrokerThread, settings: dict[str, object], tmp_path: Path) -> None:
    for command, expected in examples((ROOT / "docs" / "half.md").read_text()):
        # What a person waits for between two commands.
        if "half list" in command and "parked" not in command:
            wait_until(lambda: any(half_statuses(settings, "order-1")), "it is taken in")
        if "half show" in command:
            wait_until(
                lambda: any(half.is_decided for half in half_statuses(settings, "order-1")),
                "it is decided",
            )
        program = f"{shlex.quote(sys.executable)} -m headrace"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.replace("headrace ", f"{program} ", 1)],
            capture_output=True,
            text=True,
            env={"HEADRACE_BOOTSTRAP": broker.bootstrap, "PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}"


def test_the_example(broker: BrokerThread, settings: dict[str, object], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "half.py"), broker.bootstrap],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["not sold: no coffee left", "seen: milk tea"]

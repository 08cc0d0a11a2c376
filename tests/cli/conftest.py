"""The tool, pointed at the test's broker."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import Headrace

from headrace.cli import run_command

if TYPE_CHECKING:
    from headrace.testing import BrokerThread


@pytest.fixture
def headrace(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Headrace]:
    """Run a verb and return what it printed; it must succeed, or fail when `fails` says so.

    In this process, because a new Python for every verb would take most of the tests' time.
    """
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    on_term = signal.getsignal(signal.SIGTERM)

    def headrace(
        *arguments: str, stdin: str = "", fails: bool = False
    ) -> subprocess.CompletedProcess[str]:
        with (
            (tmp_path / "stdout").open("w+", encoding="utf-8", newline="") as out,
            (tmp_path / "stderr").open("w+", encoding="utf-8") as errors,
            monkeypatch.context() as patch,
        ):
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", errors)
            code = run_command(list(arguments))
            out.flush()
        done = subprocess.CompletedProcess(
            arguments,
            code,
            (tmp_path / "stdout").read_bytes().decode(errors="surrogateescape"),
            (tmp_path / "stderr").read_text(encoding="utf-8"),
        )
        assert (code != 0) == fails, done.stdout + done.stderr
        return done

    yield headrace
    signal.signal(signal.SIGTERM, on_term)

"""The tool, pointed at the test's broker."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL, Headrace

if TYPE_CHECKING:
    from headrace.testing import BrokerThread


@pytest.fixture
def headrace(broker: BrokerThread) -> Headrace:
    """Run a verb against the test's broker and return what it printed; it must succeed."""
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap}

    def run(
        *arguments: str, stdin: str = "", fails: bool = False
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*TOOL, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run

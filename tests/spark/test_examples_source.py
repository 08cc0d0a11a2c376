"""The example of the source runs and prints what it is meant to show."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing import BrokerThread

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_source.py"
TIMEOUT_SECONDS = 240
# Spark gives a new Python process ten seconds, which a busy machine may not have.
TOO_SLOW = "Python worker failed to connect back"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    with BrokerThread() as broker:
        return subprocess.run(
            [sys.executable, str(EXAMPLE), broker.bootstrap],
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )


@pytest.mark.timeout(TIMEOUT_SECONDS + 30)
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_a_topic_as_a_table_and_as_a_stream(tmp_path: Path) -> None:
    done = run(tmp_path)
    while TOO_SLOW in done.stderr:
        done = run(tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "{'page-0': 34, 'page-1': 33, 'page-2': 33}",
        "0 40",
        "1 40",
        "2 20",
        "[60, 20, 0]",
    ]

"""The example of delayed messages runs and prints what it is meant to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_SECONDS = 100


def test_delay(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "delay.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "ben has paid",
        "still interested, anna",
        "an hour later",
        "still interested, carl",
    ]
    assert list(tmp_path.iterdir()) == []

"""The example runs and prints what it is meant to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.dispatch.harness import Harness
from tests.waiting import WAIT_SECONDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "dispatch.py"


def test_small_jobs_overtake_a_large_one(redis_harness: Harness) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), redis_harness.bootstrap, redis_harness.tokens],
        capture_output=True,
        text=True,
        cwd=redis_harness.folder,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "small ones done, the large one is still running",
        "Picture(name='sea.png', width=4000)",
    ]

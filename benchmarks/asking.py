"""A rival's program, run to its end with what it is told as JSON; its last line is its answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS_MAX = 900.0


class BenchFailed(RuntimeError):
    """Something that is measured ended by itself; the text is its last words."""


def ask(
    module: str,
    told: Mapping[str, Any],
    *,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds_max: float = SECONDS_MAX,
) -> dict[str, Any]:
    """The answer of `benchmarks.rivals.MODULE`, with a Python and variables of its own if given."""
    program = [str(python or sys.executable), "-m", f"benchmarks.rivals.{module}"]
    try:
        done = subprocess.run(
            [*program, json.dumps(told)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"{module} did not end within {seconds_max:.0f} s") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise BenchFailed(f"{module} ended with {done.returncode}: {words}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer

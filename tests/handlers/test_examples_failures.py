"""The examples of retries, dead letters and tables run and print what they are meant to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_SECONDS = 100


def run(name: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Nothing is left behind where it runs.
    assert list(folder.iterdir()) == []
    return done.stdout.splitlines()


def test_retries(tmp_path: Path) -> None:
    assert run("retries.py", tmp_path) == [
        "billed ben:tea",
        "parked b'anna:tea' after 2 attempts",
        "parked b'anna:coffee' after 0 attempts",
        "billed anna:tea",
        "billed anna:coffee",
    ]


def test_dead_letters(tmp_path: Path) -> None:
    assert run("dead_letters.py", tmp_path) == [
        "billed tea 3",
        "order-coffee failed: KeyError: 'coffee' in __main__.bill",
        "b'coffee'",
        "billed coffee 4",
    ]


def test_tables(tmp_path: Path) -> None:
    assert run("tables.py", tmp_path) == ["tea costs 4", "tea costs nothing yet"]

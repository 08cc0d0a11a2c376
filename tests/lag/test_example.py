"""The example of lag runs and prints what it is meant to show."""

from __future__ import annotations

from pathlib import Path

from tests.handlers.test_examples_failures import run


def test_the_example(tmp_path: Path) -> None:
    assert run("lag.py", tmp_path) == [
        "billing: 6 records, 60 minutes",
        "because of: no consumer",
        "told: critical billing",
    ]

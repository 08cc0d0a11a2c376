"""The example of large messages runs and prints what it is meant to show."""

from __future__ import annotations

from pathlib import Path

from tests.handlers.test_examples_handlers import run


def test_large_messages(tmp_path: Path) -> None:
    assert run("large.py", tmp_path) == [
        "archive 2600000 characters",
        "show b'night-train' 97a0bb13",
        "records of films: 7",
        "what was sent: 97a0bb13",
    ]

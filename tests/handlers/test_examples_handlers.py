"""The examples of handlers run and print what they are meant to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_SECONDS = 60


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
    return done.stdout.splitlines()


def test_typed_messages(tmp_path: Path) -> None:
    assert run("handlers.py", tmp_path) == ["bill 2 tea", "book 700 of payments/0/0"]


def test_order_by_key(tmp_path: Path) -> None:
    assert run("handlers_order.py", tmp_path) == [
        "every key in order: True",
        "sooner than one after the other: True",
    ]


def test_the_latest_state(tmp_path: Path) -> None:
    lines = run("handlers_latest.py", tmp_path)
    assert lines[0] == "the shop window says 3"
    assert lines[-1] == "the shop window says 6"
    assert len(lines) <= 4


def test_batches(tmp_path: Path) -> None:
    assert run("handlers_batches.py", tmp_path) == ["counted 40", "dead letters: [b'poison']"]


def test_a_kafka_transaction(tmp_path: Path) -> None:
    assert run("handlers_transaction.py", tmp_path) == [str(list(range(0, 20, 2)))]


def test_a_spill(tmp_path: Path) -> None:
    assert run("handlers_pressure.py", tmp_path) == [
        "store cannot keep up: messages go to the store until it can",
        "stored 300",
    ]

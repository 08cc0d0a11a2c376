"""The examples of inbox and outbox run and print what they are meant to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_SECONDS = 60


def run(name: str, folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_outbox(broker: BrokerThread, tmp_path: Path) -> None:
    counts = "{'pending': 0, 'sent': 0, 'confirmed': 1, 'failed': 0}"
    assert run("outbox.py", tmp_path, broker.bootstrap) == ["sent 1", "confirmed 1", counts]


def test_outbox_over_a_plain_connection(tmp_path: Path) -> None:
    assert run("outbox_plain.py", tmp_path) == [
        "refused nonsense",
        "['order-tea', 'order-coffee']",
    ]


def test_inbox(broker: BrokerThread, tmp_path: Path) -> None:
    assert run("inbox.py", tmp_path, broker.bootstrap) == ["paid 15", "books.pay"]

"""The examples of docs/testing.md and examples/ run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 110


def run_pytest(*arguments: str | Path) -> str:
    """Run pytest as another project would: with the kit, without the conftest of this one."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing.plugin", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL
    )
    for number, block in enumerate(blocks):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    assert f"{len(blocks)} passed" in run_pytest("-c", "/dev/null", "--rootdir", tmp_path, tmp_path)


def test_the_example_of_the_kit_passes() -> None:
    assert "2 passed" in run_pytest("-c", "/dev/null", ROOT / "examples" / "test_with_kit.py")


def test_the_example_of_an_application_passes() -> None:
    assert "2 passed" in run_pytest("-c", "/dev/null", ROOT / "examples" / "test_app.py")


def test_the_example_with_a_stock_client_reads_what_it_wrote(broker: BrokerThread) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "produce_consume.py", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["k0 hello 0", "k1 hello 1", "k2 hello 2"]

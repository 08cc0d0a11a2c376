"""The examples of docs/cli.md print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
TIMEOUT_SECONDS = 60


def examples() -> list[tuple[str, str]]:
    """Commands of the page in order, each with the output that follows it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append((line[2:].strip(), ""))
            else:
                command, output = found[-1]
                found[-1] = (command, output + line)
    return found


def matches(expected: str, printed: str) -> bool:
    """Equal, where `...` in the page stands for anything within a line."""
    pattern = re.escape(expected.rstrip("\n")).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, printed.rstrip("\n")) is not None


def test_every_example_of_the_page_prints_what_it_says(
    broker: BrokerThread, tmp_path: Path
) -> None:
    shim = tmp_path / "bin" / "headrace"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m headrace "$@"\n')
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "DATA": str(broker.data_dir),
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
    }
    commands = examples()
    assert commands
    for command, expected in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}"

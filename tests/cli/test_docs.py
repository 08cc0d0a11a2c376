"""The examples of the pages on the command line print what the pages say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import Headrace

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "cli.md",
    "dead-letters.md",
    "delay.md",
    "dispatch.md",
    "groups.md",
    "handlers.md",
    "inbox.md",
    "lag.md",
    "large.md",
    "outbox.md",
    "producers.md",
    "retries.md",
    "transactions.md",
)
TIMEOUT_SECONDS = 60
# A command with one of these needs a shell.
SHELL = frozenset("|<>$&;")


def programs(page: str) -> list[tuple[str, str]]:
    """Python blocks of the page that open with their file's name, with that name."""
    return re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)


def examples(page: str) -> list[tuple[str, str]]:
    """Commands of the page in order, each with the output that follows it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
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


@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_the_page_prints_what_it_says(
    headrace: Headrace,
    broker: BrokerThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / name).read_text()
    for file, program in programs(page):
        (tmp_path / file).write_text(program)
    shim = tmp_path / "bin" / "headrace"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m headrace "$@"\n')
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "DATA": str(broker.data_dir),
        "PATH": f"{shim.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    commands = examples(page)
    assert commands
    for command, expected in commands:
        if command.startswith("headrace ") and not set(command) & SHELL:
            # A new Python for every command would take most of the time.
            printed = headrace(*shlex.split(command)[1:]).stdout
            assert matches(expected, printed), f"$ {command}\n{printed}"
            continue
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

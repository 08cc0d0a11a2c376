"""How quickly the tool starts, and what it does not import on the way."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.cli.tool import TIMEOUT_SECONDS

IMPORTS_OF_THE_BROKER = """
import sys
from headrace.cli.broker.quick import read_plain
import headrace.broker
import headrace.cli.broker.broker
import headrace.cli.broker.up
print(*sorted(sys.modules))
"""


@pytest.mark.parametrize("module", ["typer", "rich", "confluent_kafka", "pytest", "pydantic"])
def test_the_broker_starts_without_what_it_does_not_need(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORTS_OF_THE_BROKER],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    assert module not in done.stdout.split()

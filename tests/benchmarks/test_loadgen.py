"""The load generator builds with the standard library alone and passes its own tests."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from benchmarks import generator

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def test_its_own_tests_pass() -> None:
    done = subprocess.run(
        ["go", "test", "./..."], cwd=generator.SOURCE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broker_that_is_not_there_is_a_clear_error() -> None:
    load = generator.Generator(generator.build(), "127.0.0.1:1")
    with pytest.raises(generator.GeneratorError, match="connection refused"):
        load.run("produce", topic="none")


def test_a_load_that_makes_no_sense_is_refused() -> None:
    load = generator.Generator(generator.build(), "127.0.0.1:1")
    with pytest.raises(generator.GeneratorError, match="-acks 2"):
        load.run("produce", acks=2)

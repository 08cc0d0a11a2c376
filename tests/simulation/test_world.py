"""The simulation itself: one seed, one story."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from tests.simulation.__main__ import KINDS
from tests.simulation.running import judge

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", KINDS)
def test_a_seed_tells_one_story(name: str) -> None:
    stories = {sha256(judge(KINDS[name], 7)[0].world.story().encode()).digest() for _ in range(2)}
    assert len(stories) == 1
    assert judge(KINDS[name], 8)[0].world.story() != judge(KINDS[name], 7)[0].world.story()


@pytest.mark.parametrize("name", KINDS)
def test_a_seed_tells_the_same_story_in_another_process(name: str) -> None:
    # The order of sets of strings differs from process to process; nothing may depend on it.
    told = subprocess.run(
        [sys.executable, "-R", "-m", "tests.simulation", name, "11"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.stderr == ""
    assert told.stdout.startswith(judge(KINDS[name], 11)[0].world.story())

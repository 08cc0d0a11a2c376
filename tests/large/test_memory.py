"""A message larger than the memory that its sender and its readers may take."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.large.memory_process import pieces

from headrace.testing import BrokerThread

ROOT = Path(__file__).parents[2]
MEMORY_KBYTES = 100_000
SHORT_BYTES = 128 << 20
LONG_BYTES = 1 << 30
TIMEOUT_SECONDS = 600


def run(verb: str, bootstrap: str, size: int) -> tuple[str, int]:
    program = (sys.executable, "-m", "tests.large.memory_process")
    done = subprocess.run(
        [*program, verb, bootstrap, "films", str(size)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said, peak = done.stdout.split()
    return said, int(peak)


def check(size: int) -> dict[str, int]:
    whole = hashlib.sha256()
    for piece in pieces(size):
        whole.update(piece)
    peaks: dict[str, int] = {}
    with BrokerThread({"log.retention.bytes": -1}) as broker:
        for verb in ("send", "consume", "handle"):
            said, peaks[verb] = run(verb, broker.bootstrap, size)
            assert said == ("sent" if verb == "send" else whole.hexdigest())
    assert max(peaks.values()) < MEMORY_KBYTES, peaks
    return peaks


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_a_message_larger_than_memory_is_streamed() -> None:
    check(SHORT_BYTES)


@pytest.mark.long
@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
def test_a_gigabyte_takes_less_than_a_hundred_megabytes() -> None:
    print(check(LONG_BYTES))

"""What all rivals of the dispatcher share: the jobs, the ideal schedule and the finish line."""

from __future__ import annotations

import heapq
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

# A job's milliseconds: most are short, a few take a hundred times as long.
SHORT_MS = 40.0
TIMES_MAX = 100.0
SHAPE = 1.1
SEED = 7

DONE = "bench:done"
_WAIT_SECONDS = 900.0


def durations_ms(count: int) -> list[float]:
    """Heavy-tailed durations, the same each time."""
    chance = random.Random(SEED)
    return [SHORT_MS * min(TIMES_MAX, chance.paretovariate(SHAPE)) for _ in range(count)]


def greedy_s(durations: Sequence[float], workers: int) -> float:
    """When the last job ends if each goes, in order, to whoever is idle first, at no cost."""
    free_at = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free_at, free_at[0] + duration / 1000)
    return max(free_at)


def work(duration_ms: float) -> None:
    """A job: it waits for something else, and takes no processor."""
    if duration_ms:
        time.sleep(duration_ms / 1000)


def given() -> dict[str, Any]:
    """What the bench has said on the command line."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    return told


def tell(answer: dict[str, Any]) -> None:
    """The last line that a rival prints."""
    print(json.dumps(answer), flush=True)


def await_done(connection: Any, count: int) -> None:
    """Wait until so many jobs were counted as done."""
    deadline_s = time.monotonic() + _WAIT_SECONDS
    while int(connection.get(DONE) or 0) < count:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{connection.get(DONE)} of {count} jobs were done")
        time.sleep(0.002)

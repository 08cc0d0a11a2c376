"""Those who run jobs: whatever a worker does, its job ends and the others go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.waiting import wait_until

from headrace.dispatch.records import Outcome
from headrace.dispatch.tokens.store import Fence
from headrace.dispatch.workers import JobRun, Workers, make_worker, make_workers
from headrace.handlers.loop import LoopThread


class Nameless(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise ValueError("no text")


def raises(error: BaseException) -> Callable[[], Any]:
    def deed() -> None:
        raise error

    return deed


DEEDS: dict[str, Callable[[], Any]] = {
    "exit": lambda: sys.exit(3),
    "interrupt": raises(KeyboardInterrupt()),
    "cancelled": raises(asyncio.CancelledError()),
    "nameless": raises(Nameless()),
}


def deaf(job: str) -> str:
    return str(DEEDS[job]()) if job in DEEDS else job


async def async_deaf(job: str) -> str:
    return deaf(job)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.stop()


@pytest.mark.parametrize("function", [deaf, async_deaf])
@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_a_worker_raises_fails_its_job_and_no_other(
    function: Callable[..., Any], deed: str, loop: LoopThread
) -> None:
    outcomes: dict[str, Outcome] = {}
    workers: Workers = make_workers(
        make_worker(function), "me", lambda task, outcome: outcomes.update({task.id: outcome}), loop
    )
    for number, job in enumerate((deed, "tea", deed, "milk")):
        workers.run(JobRun("jobs", number, 0, f"{number} {job}", Fence(1, 0), job.encode()))
    wait_until(lambda: len(outcomes) == 4)
    assert [outcomes[id].state for id in sorted(outcomes)] == ["failed", "done", "failed", "done"]
    assert outcomes["1 tea"].answer == b"tea"
    assert workers.stop(30)

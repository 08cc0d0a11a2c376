"""Workers: read from their annotations; whatever one does, its job ends and the others go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.waiting import wait_until

from headrace.dispatch.errors import DispatchError
from headrace.dispatch.jobs import Delivery
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


@dataclass
class Job:
    n: int


DELIVERY = Delivery("id", "jobs", 1, 2, "3.4")


def test_a_worker_gets_its_job_as_annotated() -> None:
    def plain(job: Any) -> Any:
        return job

    def typed(job: Job) -> Job:
        return Job(job.n + 1)

    def with_delivery(delivery: Delivery, job: Job) -> str:
        return f"{delivery.id} {job.n}"

    assert make_worker(plain).call(b"{}", DELIVERY) == b"{}"
    assert make_worker(typed).call(b'{"n":1}', DELIVERY) == Job(2)
    assert make_worker(with_delivery).delivery == "delivery"


def test_a_worker_may_be_told_how_its_job_came() -> None:
    def work(job: str, delivery: Delivery) -> str:
        return f"{job} {delivery.partition}/{delivery.offset}"

    assert make_worker(work).call(b"x", DELIVERY) == "x 1/2"


def test_annotations_that_cannot_be_used_are_named() -> None:
    def unknown(job: Nothing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def strange(job: list[int] | set[int]) -> None: ...

    with pytest.raises(DispatchError, match="'Nothing' is not defined"):
        make_worker(unknown)
    with pytest.raises(DispatchError, match="cannot be decoded as"):
        make_worker(strange)

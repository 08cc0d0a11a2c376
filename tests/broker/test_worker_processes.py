"""Worker processes: answers, errors, death, cancel and shutdown."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.waiting import wait_until_async

from headrace.broker.worker_processes import WorkerError, WorkerProcesses

DEADLINE_SECONDS = 60.0


@asynccontextmanager
async def started(processes: int = 1) -> AsyncIterator[WorkerProcesses]:
    workers = WorkerProcesses(processes)
    try:
        yield workers
    finally:
        await workers.close()


def in_loop(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await body()

    asyncio.run(bounded())


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_runs_in_another_niced_process_that_is_kept() -> None:
    async def body() -> None:
        async with started() as workers:
            assert workers.pids() == []
            pid = await workers.run(os.getpid)
            assert pid != os.getpid()
            assert await workers.run(os.getpid) == pid
            assert await workers.run(os.nice, 0) >= 10
            assert workers.pids() == [pid]
        assert not exists(pid)

    in_loop(body)


def test_what_a_job_raises_is_raised_and_the_worker_lives_on() -> None:
    async def body() -> None:
        async with started() as workers:
            pid = await workers.run(os.getpid)
            with pytest.raises(ZeroDivisionError):
                await workers.run(operator.truediv, 1, 0)
            with pytest.raises(FileNotFoundError):
                await workers.run(os.stat, "/no/such/file")
            assert await workers.run(os.getpid) == pid

    in_loop(body)


def test_an_answer_that_cannot_travel_is_an_error() -> None:
    async def body() -> None:
        async with started() as workers:
            with pytest.raises((RuntimeError, TypeError), match="pickle"):
                await workers.run(os.scandir, "/")

    in_loop(body)


def test_a_killed_worker_fails_its_job_only_and_is_replaced() -> None:
    async def body() -> None:
        async with started() as workers:
            first = await workers.run(os.getpid)
            job = asyncio.ensure_future(workers.run(time.sleep, 60))
            await wait_until_async(lambda: workers.busy == 1)
            os.kill(first, signal.SIGKILL)
            with pytest.raises(WorkerError, match="signal 9"):
                await job
            assert await workers.run(os.getpid) != first

    in_loop(body)


def test_a_worker_that_exits_by_itself_is_a_failed_job() -> None:
    async def body() -> None:
        async with started() as workers:
            with pytest.raises(WorkerError, match="exit status 3"):
                await workers.run(os._exit, 3)
            assert await workers.run(operator.add, 1, 2) == 3

    in_loop(body)


def test_cancelling_a_job_kills_its_worker_and_frees_its_place() -> None:
    async def body() -> None:
        async with started() as workers:
            pid = await workers.run(os.getpid)
            job = asyncio.ensure_future(workers.run(time.sleep, 60))
            await wait_until_async(lambda: workers.busy == 1)
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            assert await workers.run(os.getpid) != pid
            await wait_until_async(lambda: not exists(pid))

    in_loop(body)


def test_closing_ends_jobs_under_way_and_refuses_new_ones() -> None:
    async def body() -> None:
        workers = WorkerProcesses()
        pid = await workers.run(os.getpid)
        job = asyncio.ensure_future(workers.run(time.sleep, 60))
        await wait_until_async(lambda: workers.busy == 1)
        waiting = asyncio.ensure_future(workers.run(os.getpid))
        await asyncio.sleep(0)
        await workers.close()
        for ended in (job, waiting):
            with pytest.raises(WorkerError):
                await ended
        with pytest.raises(WorkerError):
            await workers.run(os.getpid)
        assert not exists(pid)

    in_loop(body)


def test_jobs_beyond_the_number_of_processes_wait_their_turn() -> None:
    async def body() -> None:
        async with started(2) as workers:
            pids = await asyncio.gather(*(workers.run(os.getpid) for _ in range(8)))
            assert 1 <= len(set(pids)) <= 2

    in_loop(body)


def test_a_worker_ends_in_the_middle_of_a_job_when_its_parent_is_killed() -> None:
    """A parent that gets kill -9 must not leave a cleaner behind that writes into its folder."""
    program = (
        "import asyncio, os, time\n"
        "from headrace.broker.worker_processes import WorkerProcesses\n"
        "async def main():\n"
        "    workers = WorkerProcesses()\n"
        "    print(await workers.run(os.getpid), flush=True)\n"
        "    await workers.run(time.sleep, 60)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.wait()

    async def body() -> None:
        await wait_until_async(lambda: not exists(worker))

    in_loop(body)

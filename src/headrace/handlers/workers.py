"""Workers: threads, or tasks of async handlers, that run chunks from the scheduler."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic, monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Protocol

from headrace.handlers.scheduler import NOTHING_DONE, NS_PER_MS, ChunkResult, Scheduler

if TYPE_CHECKING:
    from headrace.handlers.chunks import ChunkRunner
    from headrace.handlers.context import AppContext
    from headrace.handlers.lanes import Item
    from headrace.handlers.loop import LoopThread
    from headrace.handlers.spec import HandlerSpec

# A thread beyond the minimum ends after this long without work.
IDLE_SECONDS = 10.0
# Asking for a thread's processor time takes longer than most of what is done for a message.
CPU_EVERY = 16
# When no worker has reported for this long, more threads start before anything is known.
STUCK_MS = 10
# What still runs then had its time when the partitions were taken away.
STOP_SECONDS = 2.0
# SQLite has one writer: a second thread prepares its messages while the first commits.
SQLITE_WRITERS = 2


class Workers(Protocol):
    """Run a handler's messages."""

    def start(self) -> None:
        """Begin to take chunks."""

    def wake(self) -> None:
        """Take up what is ready now."""

    def stop(self) -> None:
        """Take no more chunks; wait for running messages, within a bound."""


def make_workers(
    spec: HandlerSpec, scheduler: Scheduler, chunks: ChunkRunner, context: AppContext
) -> Workers:
    """Threads, or tasks for async handlers; a handler with a transaction is run by threads."""
    in_threads = spec.wants_tx or spec.batch or spec.once == "transaction"
    if spec.is_async and not in_threads:
        return AsyncWorkers(scheduler, chunks, context.loop, spec.workers_max)
    workers_min, workers_max = spec.workers_min, spec.workers_max
    if spec.wants_tx and context.store is not None and context.store.kind == "sqlite":
        workers_min = min(workers_min, SQLITE_WRITERS)
        workers_max = min(workers_max, SQLITE_WRITERS)
    return ThreadWorkers(scheduler, chunks, workers_min, workers_max)


class ThreadWorkers:
    """A pool of threads; it grows while messages wait and handlers wait more than they compute."""

    def __init__(
        self, scheduler: Scheduler, chunks: ChunkRunner, threads_min: int, threads_max: int
    ) -> None:
        self._scheduler = scheduler
        self._chunks = chunks
        self._threads_min = threads_min
        self._threads_max = threads_max
        self._wanted = threading.Condition(scheduler.lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._has_timer = False
        self._reported_ns = monotonic_ns()
        self._runs = 0

    def start(self) -> None:
        """Start the minimum number of threads."""
        with self._scheduler.lock:
            for _ in range(self._threads_min):
                self._add_thread()

    def wake(self) -> None:
        """Wake a thread if something is ready; add some when all seem to be stuck."""
        with self._scheduler.lock:
            ready = self._scheduler.lanes.ready
            if not ready:
                return
            self._wake_one()
            if not self._idle and monotonic_ns() - self._reported_ns > STUCK_MS * NS_PER_MS:
                threads = len(self._threads)
                for _ in range(min(self._threads_max - threads, threads, ready)):
                    self._add_thread()

    def stop(self) -> None:
        """End the threads; one that is inside a handler ends after it."""
        self._scheduler.stop()
        with self._scheduler.lock:
            self._wanted.notify_all()
            threads = list(self._threads)
        deadline = monotonic() + STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))

    def run_one_chunk(self) -> bool:
        """Run a chunk in the calling thread; False when nothing may run now."""
        with self._scheduler.lock:
            chunk = self._scheduler.next_chunk()
        if chunk:
            self._scheduler.settle(chunk, self._run(chunk))
        return bool(chunk)

    def __len__(self) -> int:
        return len(self._threads)

    def _wake_one(self) -> None:
        threads = len(self._threads)
        if self._idle:
            self._wanted.notify()
        elif threads < self._threads_min or (
            threads < self._threads_max and self._scheduler.pace.has_use_for_more(threads)
        ):
            self._add_thread()

    def _add_thread(self) -> None:
        name = f"{self._scheduler.spec.name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        scheduler = self._scheduler
        chunk: list[Item] = []
        result = NOTHING_DONE
        while True:
            with scheduler.lock:
                self._reported_ns = monotonic_ns()
                chunk = scheduler.next_chunk(chunk, result)
                while not chunk:
                    if scheduler.stopping or not self._wait():
                        self._threads.discard(threading.current_thread())
                        return
                    chunk = scheduler.next_chunk()
                if scheduler.lanes.ready:
                    self._wake_one()
            result = self._run(chunk)

    def _run(self, chunk: list[Item]) -> ChunkResult:
        """Run a chunk in this thread and learn from its time."""
        self._runs += 1
        is_measured = self._runs % CPU_EVERY == 1
        cpu_ns = thread_time_ns() if is_measured else 0
        started_ns = monotonic_ns()
        result = self._chunks.run(chunk)
        ns = monotonic_ns() - started_ns
        self._scheduler.pace.note(
            result.done, ns, thread_time_ns() - cpu_ns if is_measured else None
        )
        return result

    def _wait(self) -> bool:
        """Wait for work; False when this thread is not needed any more."""
        scheduler = self._scheduler
        ready = scheduler.lanes.ready
        # One idle thread keeps time for the messages that wait for their next try.
        due_ms = None if self._has_timer else scheduler.wake_locked()
        if scheduler.lanes.ready > ready:
            return True
        is_timer = due_ms is not None
        self._has_timer = self._has_timer or is_timer
        self._idle += 1
        is_woken = self._wanted.wait(IDLE_SECONDS if due_ms is None else due_ms / 1000)
        self._idle -= 1
        if is_timer:
            self._has_timer = False
            scheduler.wake_locked()
        return is_woken or is_timer or len(self._threads) <= self._threads_min


class AsyncWorkers:
    """Up to `tasks_max` chunks at once on one event loop; tasks start as they are needed."""

    def __init__(
        self, scheduler: Scheduler, chunks: ChunkRunner, loop: LoopThread, tasks_max: int
    ) -> None:
        self._scheduler = scheduler
        self._chunks = chunks
        self._thread = loop
        self._tasks_max = tasks_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_woken = False

    def start(self) -> None:
        """Do nothing: tasks begin with the first message."""

    def wake(self) -> None:
        """Give the loop a turn if something is ready."""
        if self._scheduler.lanes.ready and not self._is_woken:
            self._is_woken = True
            self._thread.loop.call_soon_threadsafe(self._add_task)

    def stop(self) -> None:
        """Wait for the messages that are at work, within a bound."""
        self._scheduler.stop()

        async def ended() -> None:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=STOP_SECONDS)

        self._thread.run(ended())

    def _add_task(self) -> None:
        """Start a task; runs on the loop."""
        self._is_woken = False
        if len(self._tasks) >= self._tasks_max:
            return
        with self._scheduler.lock:
            chunk = self._scheduler.next_chunk()
            more = bool(self._scheduler.lanes.ready)
        if not chunk:
            return
        task = asyncio.get_running_loop().create_task(self._work(chunk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if more:
            self._thread.loop.call_soon(self._add_task)

    def _on_due(self) -> None:
        self._scheduler.wake()
        self._add_task()

    async def _work(self, chunk: list[Item]) -> None:
        scheduler = self._scheduler
        while chunk:
            started_ns = monotonic_ns()
            result = await self._chunks.run_async(chunk)
            scheduler.pace.note(result.done, monotonic_ns() - started_ns)
            with scheduler.lock:
                chunk = scheduler.next_chunk(chunk, result)
                more = bool(scheduler.lanes.ready)
                wait_ms = None if result.retry_at_ms is None else scheduler.wake_locked()
            if wait_ms is not None:
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_due)
            if more and len(self._tasks) < self._tasks_max:
                self._add_task()

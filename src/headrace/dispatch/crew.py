"""Those who run jobs: threads for a sync worker, tasks on one event loop for an async one."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from headrace.dispatch.fences import Fence
from headrace.dispatch.jobs import Delivery, Worker, encode_answer
from headrace.dispatch.outcomes import Outcome
from headrace.handlers.loop import LoopThread

# A thread that had nothing to do for so long ends.
IDLE_SECONDS = 10.0
# How often a stopping crew is looked at.
LOOK_SECONDS = 0.02


class Task(NamedTuple):
    """An item that is to be run."""

    topic: str
    partition: int
    offset: int
    id: str
    fence: Fence
    value: bytes
    submitted_ms: int = 0

    @property
    def delivery(self) -> Delivery:
        """What the worker may know of it."""
        return Delivery(self.id, self.topic, self.partition, self.offset, self.fence.text())


# Called in the thread that has run the task.
Ended = Callable[[Task, Outcome], None]


class Crew(Protocol):
    """Runs tasks; as many at once as there are, since a partition never has two."""

    busy: int

    def run(self, task: Task) -> None:
        """Begin a task; returns at once."""
        ...

    def stop(self, timeout_s: float) -> bool:
        """Wait for what runs; False if something still does, and is left alone."""
        ...


def make_crew(worker: Worker, node: str, ended: Ended, loop: LoopThread) -> Crew:
    """Threads or tasks, as the worker needs it."""
    return Tasks(worker, node, ended, loop) if worker.is_async else Threads(worker, node, ended)


class Threads:
    """Threads that are hired when all others are busy."""

    def __init__(self, worker: Worker, node: str, ended: Ended) -> None:
        self.busy = 0
        self._worker = worker
        self._node = node
        self._ended = ended
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def run(self, task: Task) -> None:
        """Give the task to a thread that is free, or to a new one."""
        with self._lock:
            self.busy += 1
            is_short = self.busy > self._threads
            if is_short:
                self._threads += 1
        self._tasks.put(task)
        if is_short:
            threading.Thread(target=self._work, name="headrace-worker", daemon=True).start()

    def stop(self, timeout_s: float) -> bool:
        """Wait for what runs; idle threads end by themselves."""
        return _wait_idle(self, timeout_s)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # One may have been promised to this thread just now.
                    if self._threads > self.busy:
                        self._threads -= 1
                        return
                continue
            # Whatever it raises, sys.exit() too, is the end of this job and not of the thread.
            try:
                answer = self._worker.call(task.value, task.delivery)
                outcome = done(task, self._node, answer)
            except BaseException as error:
                outcome = failed(task, self._node, error)
            try:
                self._ended(task, outcome)
            finally:
                with self._lock:
                    self.busy -= 1


class Tasks:
    """Tasks on the loop; those that come together are begun together."""

    def __init__(self, worker: Worker, node: str, ended: Ended, loop: LoopThread) -> None:
        self.busy = 0
        self._worker = worker
        self._node = node
        self._ended = ended
        self._loop = loop
        self._coming: deque[Task] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._is_called = False
        self._is_stopped = False

    def run(self, task: Task) -> None:
        """Have the task begun on the loop."""
        with self._lock:
            self.busy += 1
            self._coming.append(task)
            is_first, self._is_called = not self._is_called, True
        if is_first:
            self._loop.loop.call_soon_threadsafe(self._begin)

    def stop(self, timeout_s: float) -> bool:
        """Wait for what runs; the rest is cancelled with the loop, and runs again elsewhere."""
        is_idle = _wait_idle(self, timeout_s)
        self._is_stopped = True
        return is_idle

    def _begin(self) -> None:
        with self._lock:
            tasks, self._coming = self._coming, deque()
            self._is_called = False
        for task in tasks:
            running = asyncio.get_running_loop().create_task(self._work(task))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _work(self, task: Task) -> None:
        try:
            answer = await self._worker.call(task.value, task.delivery)
            outcome = done(task, self._node, answer)
        except BaseException as error:
            # A cancelled task of the worker's own is its failure, as is sys.exit(), which would
            # end the loop and with it all other jobs.
            if self._is_stopped and isinstance(error, asyncio.CancelledError):
                raise
            outcome = failed(task, self._node, error)
        try:
            self._ended(task, outcome)
        finally:
            with self._lock:
                self.busy -= 1


def done(task: Task, node: str, answer: Any) -> Outcome:
    """The outcome of a task that ended well."""
    payload, kind = encode_answer(answer)
    place = (task.partition, task.offset, task.fence.text(), node)
    return Outcome(task.id, "done", *place, payload, kind, submitted_ms=task.submitted_ms)


def failed(task: Task, node: str, error: BaseException) -> Outcome:
    """The outcome of a task whose worker raised."""
    place = (task.partition, task.offset, task.fence.text(), node)
    try:
        text = str(error)
    except Exception:
        text = "an error that cannot be shown"
    kind = type(error).__name__
    return Outcome(task.id, "failed", *place, error=(kind, text), submitted_ms=task.submitted_ms)


def _wait_idle(crew: Crew, timeout_s: float) -> bool:
    until = threading.Event()
    looks = int(timeout_s / LOOK_SECONDS) + 1
    for _ in range(looks):
        if not crew.busy:
            return True
        until.wait(LOOK_SECONDS)
    return not crew.busy

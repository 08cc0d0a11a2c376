"""The worker function, and the workers that run it: threads if it is sync, tasks if it is async."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, get_type_hints

from headrace.client.payloads import Decoder, decoder
from headrace.dispatch.errors import DispatchError
from headrace.dispatch.jobs import Delivery, encode_answer
from headrace.dispatch.records import Outcome
from headrace.dispatch.tokens.store import Fence
from headrace.errors import HandlerError
from headrace.handlers.loop import LoopThread

# A thread that was idle this long ends.
IDLE_SECONDS = 10.0
# How often stopping workers are checked.
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class WorkerFunction:
    """The user's function, and how its argument and answer are encoded."""

    function: Callable[..., Any]
    is_async: bool
    decode_job: Decoder
    decode_answer: Decoder | None
    # The name of the parameter that gets the delivery.
    delivery: str | None

    def call(self, value: bytes, delivery: Delivery) -> Any:
        """Call the function with a job; the result of an async one must be awaited."""
        if self.delivery is None:
            return self.function(self.decode_job(value))
        return self.function(self.decode_job(value), **{self.delivery: delivery})


def make_worker(function: Callable[..., Any]) -> WorkerFunction:
    """Read a worker's annotations; DispatchError if it does not take exactly one job."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise DispatchError(
            f"an annotation of worker {name} cannot be read: {error}",
            "import the type at run time and define it before the worker, in its module",
        ) from None
    delivery = next((key for key, hint in hints.items() if hint is Delivery), None)
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.name != delivery
    ]
    if len(needed) != 1:
        raise DispatchError(
            f"worker {name} must take one job, not {len(needed)} arguments", "def work(job: Job)"
        )
    returns = hints.get("return")
    untyped = returns in (None, type(None), Any)
    try:
        return WorkerFunction(
            function,
            inspect.iscoroutinefunction(function),
            decoder(hints.get(needed[0].name, Any)),
            None if untyped else decoder(returns),
            delivery,
        )
    except HandlerError as error:
        raise DispatchError(error.message, error.hint) from None


class JobRun(NamedTuple):
    """A job that is to be run, and the record it came with."""

    topic: str
    partition: int
    offset: int
    id: str
    fence: Fence
    value: bytes
    submitted_ms: int = 0

    @property
    def delivery(self) -> Delivery:
        """What the worker may know about it."""
        return Delivery(self.id, self.topic, self.partition, self.offset, self.fence.text())


# Called in the thread that has run the job.
Ended = Callable[[JobRun, Outcome], None]


class Workers(Protocol):
    """Runs jobs, all of them at once: a partition never has two."""

    busy: int

    def run(self, job: JobRun) -> None:
        """Start a job; returns at once."""
        ...

    def stop(self, timeout_s: float) -> bool:
        """Wait for running jobs; False if some still run, which are left alone."""
        ...


def make_workers(worker: WorkerFunction, node: str, ended: Ended, loop: LoopThread) -> Workers:
    """Threads for a sync worker, tasks for an async one."""
    if worker.is_async:
        return TaskWorkers(worker, node, ended, loop)
    return ThreadWorkers(worker, node, ended)


class ThreadWorkers:
    """Threads; a new one is started when all others are busy."""

    def __init__(self, worker: WorkerFunction, node: str, ended: Ended) -> None:
        self.busy = 0
        self._worker = worker
        self._node = node
        self._ended = ended
        self._jobs: queue.SimpleQueue[JobRun] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def run(self, job: JobRun) -> None:
        """Give the job to an idle thread, or to a new one."""
        with self._lock:
            self.busy += 1
            is_short = self.busy > self._threads
            if is_short:
                self._threads += 1
        self._jobs.put(job)
        if is_short:
            threading.Thread(target=self._work, name="headrace-worker", daemon=True).start()

    def stop(self, timeout_s: float) -> bool:
        """Wait for running jobs; idle threads end by themselves."""
        return _wait_idle(self, timeout_s)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # A job may have been meant for this thread just now.
                    if self._threads > self.busy:
                        self._threads -= 1
                        return
                continue
            # Whatever the worker raises, even SystemExit, ends the job and not the thread.
            try:
                answer = self._worker.call(job.value, job.delivery)
                outcome = done(job, self._node, answer)
            except BaseException as error:
                outcome = failed(job, self._node, error)
            try:
                self._ended(job, outcome)
            finally:
                with self._lock:
                    self.busy -= 1


class TaskWorkers:
    """Tasks on the event loop; jobs that arrive together are started together."""

    def __init__(self, worker: WorkerFunction, node: str, ended: Ended, loop: LoopThread) -> None:
        self.busy = 0
        self._worker = worker
        self._node = node
        self._ended = ended
        self._loop = loop
        self._coming: deque[JobRun] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self._is_called = False
        self._is_stopped = False

    def run(self, job: JobRun) -> None:
        """Start the job on the loop."""
        with self._lock:
            self.busy += 1
            self._coming.append(job)
            is_first, self._is_called = not self._is_called, True
        if is_first:
            self._loop.loop.call_soon_threadsafe(self._begin)

    def stop(self, timeout_s: float) -> bool:
        """Wait for running jobs; the rest is cancelled with the loop, and runs again elsewhere."""
        is_idle = _wait_idle(self, timeout_s)
        self._is_stopped = True
        return is_idle

    def _begin(self) -> None:
        with self._lock:
            jobs, self._coming = self._coming, deque()
            self._is_called = False
        for job in jobs:
            running = asyncio.get_running_loop().create_task(self._work(job))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _work(self, job: JobRun) -> None:
        try:
            answer = await self._worker.call(job.value, job.delivery)
            outcome = done(job, self._node, answer)
        except BaseException as error:
            # A task that the worker itself cancelled is a failed job. So is SystemExit, which
            # would end the loop and with it all other jobs.
            if self._is_stopped and isinstance(error, asyncio.CancelledError):
                raise
            outcome = failed(job, self._node, error)
        try:
            self._ended(job, outcome)
        finally:
            with self._lock:
                self.busy -= 1


def done(job: JobRun, node: str, answer: Any) -> Outcome:
    """The outcome of a job whose worker returned."""
    payload, kind = encode_answer(answer)
    origin = (job.partition, job.offset, job.fence.text(), node)
    return Outcome(job.id, "done", *origin, payload, kind, submitted_ms=job.submitted_ms)


def failed(job: JobRun, node: str, error: BaseException) -> Outcome:
    """The outcome of a job whose worker raised an error."""
    origin = (job.partition, job.offset, job.fence.text(), node)
    try:
        text = str(error)
    except Exception:
        text = "an error that cannot be shown"
    kind = type(error).__name__
    return Outcome(job.id, "failed", *origin, error=(kind, text), submitted_ms=job.submitted_ms)


def _wait_idle(workers: Workers, timeout_s: float) -> bool:
    pause = threading.Event()
    for _ in range(int(timeout_s / POLL_SECONDS) + 1):
        if not workers.busy:
            return True
        pause.wait(POLL_SECONDS)
    return not workers.busy

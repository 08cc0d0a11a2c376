"""The dispatcher that users see: jobs go in, run at the owner of an idle partition, and come back.

`Dispatcher` submits jobs and runs them; `Handle` is a submitted job that its caller can wait for.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from headrace.dispatch.errors import DispatchError, JobFailed
from headrace.dispatch.jobs import decode_answer, encode_job
from headrace.dispatch.node import Node
from headrace.dispatch.options import DispatchLimits, NodeOptions, check_settings, job_bytes_max
from headrace.dispatch.records import Outcome
from headrace.dispatch.spool.frames import ID_BYTES_MAX
from headrace.dispatch.spool.port import JobPut, Spool, check_sync
from headrace.dispatch.spool.writer import SpoolCapacity, closed
from headrace.dispatch.tokens import open_tokens
from headrace.dispatch.tokens.scheduler import WEIGHT_MAX, Policy
from headrace.dispatch.workers import WorkerFunction, make_worker
from headrace.timing.durations import duration_ms

TOKENS = "sqlite:///headrace-tokens.db"
PARTITIONS = 16
SPOOL_ITEMS_MAX = 100_000
SPOOL_BYTES_MAX = 256 * 1024 * 1024
# How late `run` notices a signal.
POLL_SECONDS = 0.2

Function = TypeVar("Function", bound=Callable[..., Any])

# Guards the waiters of all handles: there are few, and it is held for nanoseconds.
_waiters_lock = threading.Lock()


class Dispatcher:
    """Submits jobs and runs them, each at a partition that is idle.

    `tokens` is `redis://HOST/0`, or `sqlite:///FILE` for the processes of one machine; `spool` is
    this node's own file, or the URL of a database that all nodes share; `policy` is `fair` or
    `race`; `settings` are client settings with Kafka's names.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str,
        tokens: str = TOKENS,
        spool: str | Path | None = None,
        policy: Policy = "fair",
        weight: int = 1,
        group: str | None = None,
        node: str | None = None,
        partitions: int = PARTITIONS,
        full: str = "wait",
        sync: str = "always",
        spool_items_max: int = SPOOL_ITEMS_MAX,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
        drain: str | int = "30s",
        adopt_after: str | int = "30s",
        limits: DispatchLimits | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.tokens = tokens
        self.spool = str(spool) if spool is not None else f"{topic}.spool"
        self.policy = policy
        if not 1 <= weight <= WEIGHT_MAX:
            raise ValueError(f"weight must be from 1 to {WEIGHT_MAX}, not {weight}")
        self.weight = weight
        self.group = group or f"headrace.dispatch.{topic}"
        self.node_name = node
        self.partitions = partitions
        self.limits = limits or DispatchLimits()
        self.settings = check_settings(settings or {})
        self._job_bytes_max = job_bytes_max(self.settings)
        self._sync = check_sync(sync)
        self._drain_s = duration_ms(drain) / 1000
        self._adopt_after_ms = duration_ms(adopt_after)
        self._capacity = SpoolCapacity(spool_items_max, spool_bytes_max, full)
        self._worker: WorkerFunction | None = None
        self._node: Node | None = None
        self._starting = threading.Lock()
        self._handles: WeakValueDictionary[str, Handle] = WeakValueDictionary()
        self._submitted = 0
        self._submitted_ms = 0
        self._is_stopped = False
        self._is_asked_to_stop = False

    @property
    def done_topic(self) -> str:
        """The topic that gets the outcome of each job."""
        return f"{self.topic}.done"

    @property
    def has_worker(self) -> bool:
        """Whether this dispatcher has a worker function."""
        return self._worker is not None

    @property
    def node(self) -> Node | None:
        """The running node, for metrics and tests."""
        return self._node

    def worker(self, function: Function) -> Function:
        """Make a function, sync or async, the one that runs the jobs."""
        if self._worker is not None:
            raise DispatchError("a dispatcher has one worker", "use another topic for other work")
        self._worker = make_worker(function)
        return function

    def start(self, *, work: bool = True) -> Self:
        """Start sending jobs, and running them if there is a worker and `work` is True."""
        with self._starting:
            if self._node is not None:
                raise DispatchError("the dispatcher is already running")
            self._start(work)
        return self

    def stop(self) -> None:
        """Leave the group, let running jobs finish within `drain`, keep the rest in the spool."""
        self._capacity.close()
        with self._starting:
            self._is_stopped = True
            node, self._node = self._node, None
            if node is not None:
                node.stop(self._drain_s)
                self._submitted += node.submitter.submitted
        for id, handle in list(self._handles.items()):
            handle.finish(
                None,
                DispatchError(
                    f"the dispatcher stopped before job {id} was finished",
                    "the job is kept in the spool, and goes on at the next start",
                ),
            )
        self._handles.clear()

    def run(self) -> None:
        """Start and work until `request_stop`."""
        self.start()
        try:
            pause = threading.Event()
            while not self._is_asked_to_stop:
                pause.wait(POLL_SECONDS)
        finally:
            self._is_asked_to_stop = False
            self.stop()

    def request_stop(self) -> None:
        """Make `run` end; may be called from a signal handler."""
        self._is_asked_to_stop = True

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the group has assigned partitions to this node; True if it has."""
        consumer = None if self._node is None else self._node.consumer
        return consumer is not None and consumer.ready.wait(timeout)

    async def submit(self, job: Any, *, id: str | None = None) -> Handle:
        """Put a job into this node's spool; it is durable when this returns.

        Waits for room in a full spool (SpoolFull with full="refuse"). A job with the id of an
        unfinished one is that job. If this is cancelled, the job may or may not be submitted.
        """
        return (await self.submit_all([job], ids=None if id is None else [id]))[0]

    async def submit_all(
        self, jobs: Iterable[Any], *, ids: Iterable[str] | None = None
    ) -> list[Handle]:
        """Put many jobs into the spool with one sync, all or none."""
        if self._node is None:
            await asyncio.to_thread(self._start_sending)
        puts = self._puts(jobs, ids)
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        handles = self._submit(puts, lambda error: _resolve(loop, stored, error))
        await stored
        return handles

    def submit_sync(
        self, job: Any, *, id: str | None = None, timeout: float | None = None
    ) -> Handle:
        """`submit` for code without an event loop; TimeoutError if there was no room in time."""
        return self.submit_all_sync([job], ids=None if id is None else [id], timeout=timeout)[0]

    def submit_all_sync(
        self,
        jobs: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> list[Handle]:
        """Put many jobs into the spool with one sync, all or none."""
        if self._node is None:
            self._start_sending()
        errors: list[Exception | None] = []
        stored = threading.Event()

        def on_stored(error: Exception | None) -> None:
            errors.append(error)
            stored.set()

        handles = self._submit(self._puts(jobs, ids), on_stored)
        if not stored.wait(timeout):
            raise TimeoutError(
                f"the spool had no room for {timeout} s; the job may still be stored"
            )
        if errors[0] is not None:
            raise errors[0]
        return handles

    def metrics(self) -> dict[str, int]:
        """The metrics of this node, by name."""
        node = self._node
        found = {} if node is None else node.metrics()
        return {
            "submitted": self._submitted + (0 if node is None else node.submitter.submitted),
            "spool_items": self._capacity.jobs,
            "spool_bytes": self._capacity.bytes,
            "spool_waiting": self._capacity.waiting,
            **found,
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await asyncio.to_thread(self.stop)

    def _start_sending(self) -> None:
        """Start without working, for a process that only submits."""
        with self._starting:
            if self._is_stopped:
                raise closed()
            if self._node is None:
                self._start(work=False)

    def _start(self, work: bool) -> None:
        store = open_tokens(self.tokens, self.topic, limits=self.limits, policy=self.policy)
        spool = self._open_spool()
        options = NodeOptions(
            bootstrap=self.bootstrap,
            topic=self.topic,
            done_topic=self.done_topic,
            group=self.group,
            settings=self.settings,
            limits=self.limits,
            weight=self.weight,
            partitions=self.partitions,
            tokens=self.tokens,
        )
        self._capacity.open()
        worker = self._worker if work else None
        node: Node | None = None
        try:
            node = Node(options, store, spool, self._capacity, worker, self._finished)
            node.start()
        except BaseException:
            # The first error is the one to raise.
            for close in (spool.close, store.close, *([] if node is None else [node.abandon])):
                with suppress(Exception):
                    close()
            raise
        self._node = node
        self._is_stopped = False

    def _open_spool(self) -> Spool:
        if "://" in self.spool:
            from headrace.dispatch.spool.table import TableSpool

            return TableSpool(
                self.spool,
                self.topic,
                node=self.node_name,
                adopt_after_ms=self._adopt_after_ms,
                now_ms=lambda: time.time_ns() // 1_000_000,
            )
        from headrace.dispatch.spool.file import FileSpool

        return FileSpool(Path(self.spool), sync=self._sync)

    def _puts(self, jobs: Iterable[Any], ids: Iterable[str] | None) -> list[JobPut]:
        # Never the same twice: it tells jobs with the same id apart.
        now_ms = max(time.time_ns() // 1_000_000, self._submitted_ms + 1)
        self._submitted_ms = now_ms
        if ids is None:
            puts = [JobPut(uuid.uuid4().hex, encode_job(job), now_ms) for job in jobs]
        else:
            puts = [JobPut(id, encode_job(job), now_ms) for id, job in zip(ids, jobs, strict=True)]
        for put in puts:
            if len(put.value) > self._job_bytes_max:
                raise DispatchError(
                    f"a job of {len(put.value)} bytes is too large; "
                    f"the limit is {self._job_bytes_max}",
                    'raise settings={"max.request.size": ...} and max.message.bytes of the topic, '
                    "or submit a reference to the data",
                )
            if not 0 < len(put.id.encode()) <= ID_BYTES_MAX or "\0" in put.id:
                raise DispatchError(
                    f"{put.id!r} is not a valid job id; use 1 to {ID_BYTES_MAX} bytes without NUL"
                )
        return puts

    def _submit(
        self, puts: list[JobPut], stored: Callable[[Exception | None], None]
    ) -> list[Handle]:
        node = self._node
        if node is None:
            raise closed()
        handles: list[Handle] = []
        for put in puts:
            handle = self._handles.get(put.id)
            if handle is None:
                handle = self._handles[put.id] = Handle(put.id)
            handles.append(handle)
        node.submitter.submit(puts, stored)
        return handles

    def _finished(self, outcome: Outcome) -> None:
        handle = self._handles.pop(outcome.id, None)
        if handle is None:
            return
        if outcome.state == "failed":
            handle.finish(None, JobFailed(outcome.id, *outcome.error))
            return
        try:
            decode_json = None if self._worker is None else self._worker.decode_answer
            handle.finish(decode_answer(outcome.answer, outcome.answer_kind, decode_json))
        except Exception as error:
            handle.finish(None, error)


class Handle:
    """A submitted job; `await handle` or `handle.result()` gives the worker's answer.

    JobFailed if the worker raised an error. A caller that stops waiting (a timeout, a cancelled
    task) does not affect the job. You do not have to wait.
    """

    __slots__ = ("__weakref__", "_answer", "_error", "_is_done", "_waiters", "id")

    def __init__(self, id: str) -> None:
        self.id = id
        self._is_done = False
        self._answer: Any = None
        self._error: BaseException | None = None
        self._waiters: list[Callable[[], None]] | None = None

    def done(self) -> bool:
        """Whether the job is finished, with or without an error."""
        return self._is_done

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the worker's answer; TimeoutError if the job is not finished by then."""
        if not self._is_done:
            woken = threading.Event()
            if self._wake_later(woken.set) and not woken.wait(timeout):
                raise TimeoutError(f"job {self.id} is not finished after {timeout} s")
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._is_done:
            loop = asyncio.get_running_loop()
            woken: asyncio.Future[None] = loop.create_future()
            if self._wake_later(lambda: _resolve(loop, woken)):
                yield from woken
        return self._outcome()

    def finish(self, answer: Any, error: BaseException | None = None) -> None:
        """Called once by the dispatcher, when the job's outcome is known."""
        self._answer, self._error = answer, error
        with _waiters_lock:
            self._is_done = True
            waiters, self._waiters = self._waiters, None
        for wake in waiters or ():
            wake()

    def _wake_later(self, wake: Callable[[], None]) -> bool:
        """Have `wake` called when the job is finished; False if it already is."""
        with _waiters_lock:
            if self._is_done:
                return False
            self._waiters = [*(self._waiters or ()), wake]
        return True

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._answer


def _resolve(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[None],
    error: BaseException | None = None,
) -> None:
    """Resolve a future of a loop from another thread; does nothing if the loop has ended."""

    def settle() -> None:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)

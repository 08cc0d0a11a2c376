"""The public face: jobs go in here, and run on the node that owns an idle partition."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from headrace.dispatch.errors import DispatchError, JobFailed
from headrace.dispatch.handle import Handle, resolve
from headrace.dispatch.jobs import Worker, decode_answer, encode_job, make_worker
from headrace.dispatch.limits import Limits
from headrace.dispatch.node import Node, Plan
from headrace.dispatch.outcomes import Outcome
from headrace.dispatch.room import Room, closed
from headrace.dispatch.settings import check_settings, job_bytes_max
from headrace.dispatch.sharing import WEIGHT_MAX, Policy
from headrace.dispatch.spool.changes import Put
from headrace.dispatch.spool.frames import ID_BYTES_MAX
from headrace.dispatch.spool.port import Spool, check_policy
from headrace.dispatch.tokens_open import open_tokens
from headrace.timing.durations import duration_ms

TOKENS = "sqlite:///headrace-tokens.db"
PARTITIONS = 16
SPOOL_ITEMS_MAX = 100_000
SPOOL_BYTES_MAX = 256 * 1024 * 1024
# How late a signal is noticed.
LOOK_SECONDS = 0.2

Function = TypeVar("Function", bound=Callable[..., Any])

_log = logging.getLogger("headrace.dispatch")


class Dispatcher:
    """Work goes to whoever is idle: one object to submit jobs with, and to run them.

    `tokens` is `redis://HOST/0` or `sqlite:///FILE` (all processes of one machine); `spool` is
    this node's own file, or the URL of a database that all nodes share; `policy` is `fair` or
    `race`; `settings` are client settings by Kafka's names.
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
        limits: Limits | None = None,
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
        self.limits = limits or Limits()
        self.settings = check_settings(settings or {})
        self._job_bytes_max = job_bytes_max(self.settings)
        self._sync = check_policy(sync)
        self._drain_s = duration_ms(drain) / 1000
        self._adopt_after_ms = duration_ms(adopt_after)
        self._room = Room(spool_items_max, spool_bytes_max, full)
        self._worker: Worker | None = None
        self._node: Node | None = None
        self._starting = threading.Lock()
        self._handles: WeakValueDictionary[str, Handle] = WeakValueDictionary()
        self._submitted = 0
        self._submitted_ms = 0
        self._is_stopped = False
        self._is_asked_to_stop = False

    @property
    def done_topic(self) -> str:
        """Where it is written what became of each job."""
        return f"{self.topic}.done"

    @property
    def has_worker(self) -> bool:
        """Whether a function runs jobs here."""
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
        """Begin to send, and with a worker (unless `work` is False) to run jobs."""
        with self._starting:
            if self._node is not None:
                raise DispatchError("the dispatcher is already running")
            self._start(work)
        return self

    def stop(self) -> None:
        """Leave the group, let running jobs finish within `drain`, keep the rest in the spool."""
        self._room.close()
        with self._starting:
            self._is_stopped = True
            node, self._node = self._node, None
            if node is not None:
                node.stop(self._drain_s)
        for id, handle in list(self._handles.items()):
            handle.finish(
                None,
                DispatchError(
                    f"the dispatcher has stopped before job {id} was finished",
                    "it is kept in the spool, and goes on at the next start",
                ),
            )
        self._handles.clear()

    def run(self) -> None:
        """Start and work until `request_stop`."""
        self.start()
        try:
            pause = threading.Event()
            while not self._is_asked_to_stop:
                pause.wait(LOOK_SECONDS)
        finally:
            self._is_asked_to_stop = False
            self.stop()

    def request_stop(self) -> None:
        """Make `run` end; may be called from a signal handler."""
        self._is_asked_to_stop = True

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the group has given this node its first partitions; True if it has."""
        consumer = None if self._node is None else self._node.consumer
        return consumer is not None and consumer.ready.wait(timeout)

    async def submit(self, job: Any, *, id: str | None = None) -> Handle:
        """Put a job into this node's queue; it is durable when this returns.

        Waits for room in a full spool (SpoolFull with full="refuse"). A job with the id of one
        that is not finished is that one. Cancelled, it may or may not be submitted.
        """
        return (await self.submit_all([job], ids=None if id is None else [id]))[0]

    async def submit_all(
        self, jobs: Iterable[Any], *, ids: Iterable[str] | None = None
    ) -> list[Handle]:
        """Put many jobs into the queue with one sync, all or none."""
        if self._node is None:
            await asyncio.to_thread(self._start_sending)
        puts = self._puts(jobs, ids)
        loop = asyncio.get_running_loop()
        kept: asyncio.Future[None] = loop.create_future()
        handles = self._submit(puts, lambda error: resolve(loop, kept, error))
        await kept
        return handles

    def submit_sync(
        self, job: Any, *, id: str | None = None, timeout: float | None = None
    ) -> Handle:
        """The same for code without an event loop; TimeoutError if there was no room in time."""
        return self.submit_all_sync([job], ids=None if id is None else [id], timeout=timeout)[0]

    def submit_all_sync(
        self,
        jobs: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> list[Handle]:
        """Put many jobs into the queue with one sync, all or none."""
        if self._node is None:
            self._start_sending()
        errors: list[Exception | None] = []
        kept = threading.Event()

        def on_kept(error: Exception | None) -> None:
            errors.append(error)
            kept.set()

        handles = self._submit(self._puts(jobs, ids), on_kept)
        if not kept.wait(timeout):
            raise TimeoutError(f"no room in the spool for {timeout} s; the job may still get in")
        if errors[0] is not None:
            raise errors[0]
        return handles

    def metrics(self) -> dict[str, int]:
        """Counts and gauges of this node, by name."""
        node = self._node
        found = {} if node is None else node.metrics()
        return {
            "submitted": self._submitted,
            "spool_items": self._room.items,
            "spool_bytes": self._room.bytes,
            "spool_waiting": self._room.waiting,
            **found,
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _start_sending(self) -> None:
        """Who only submits does not have to run anything."""
        with self._starting:
            if self._is_stopped:
                raise closed()
            if self._node is None:
                self._start(work=False)

    def _start(self, work: bool) -> None:
        store = open_tokens(self.tokens, self.topic, limits=self.limits, policy=self.policy)
        spool = self._open_spool()
        plan = Plan(
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
        self._room.open()
        worker = self._worker if work else None
        node: Node | None = None
        try:
            node = Node(plan, store, spool, self._room, worker, self._finished)
            node.start()
        except BaseException:
            # What went wrong first is what matters.
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

    def _puts(self, jobs: Iterable[Any], ids: Iterable[str] | None) -> list[Put]:
        # Never the same twice: with it, an id that is used again names another job.
        now_ms = max(time.time_ns() // 1_000_000, self._submitted_ms + 1)
        self._submitted_ms = now_ms
        if ids is None:
            puts = [Put(uuid.uuid4().hex, encode_job(job), now_ms) for job in jobs]
        else:
            puts = [Put(id, encode_job(job), now_ms) for id, job in zip(ids, jobs, strict=True)]
        for put in puts:
            if len(put.value) > self._job_bytes_max:
                raise DispatchError(
                    f"a job of {len(put.value)} bytes is larger than {self._job_bytes_max}",
                    'raise settings={"max.request.size": ...} and max.message.bytes of the topic, '
                    "or submit a reference to what is large",
                )
            if not 0 < len(put.id.encode()) <= ID_BYTES_MAX or "\0" in put.id:
                raise DispatchError(
                    f"a job's id has 1 to {ID_BYTES_MAX} bytes and no NUL, not {put.id!r}"
                )
        return puts

    def _submit(self, puts: list[Put], kept: Callable[[Exception | None], None]) -> list[Handle]:
        node = self._node
        if node is None:
            raise closed()
        handles: list[Handle] = []
        for put in puts:
            handle = self._handles.get(put.id)
            if handle is None:
                handle = self._handles[put.id] = Handle(put.id)
            handles.append(handle)
        new = list({put.id: put for put in puts if put.id not in node.submitting.items}.values())
        size = sum(len(put.value) for put in new)

        def entered(error: Exception | None) -> None:
            if error is not None:
                kept(error)
            else:
                node.put(new, lambda error: self._kept(new, size, error, kept))

        self._room.enter(len(new), size, entered)
        return handles

    def _kept(
        self,
        puts: list[Put],
        size: int,
        error: Exception | None,
        kept: Callable[[Exception | None], None],
    ) -> None:
        if error is None:
            self._submitted += len(puts)
        else:
            self._room.leave(len(puts), size)
        kept(error)

    def _finished(self, outcome: Outcome) -> None:
        handle = self._handles.pop(outcome.id, None)
        if handle is None:
            return
        if outcome.state == "failed":
            handle.finish(None, JobFailed(outcome.id, *outcome.error))
            return
        try:
            handle.finish(decode_answer(outcome.answer, outcome.answer_kind, self._worker))
        except Exception as error:
            handle.finish(None, error)

"""Workers of async handlers: tasks on one event loop that take chunks from an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

from headrace.client.message import LAZY_RECORDS
from headrace.handlers.batches import is_covered
from headrace.handlers.engine import CHUNK_MS_MAX, Engine
from headrace.handlers.execution import Reached, arguments
from headrace.handlers.pace import NS_PER_MS

if TYPE_CHECKING:
    from headrace.handlers.lanes import Item
    from headrace.handlers.loop import LoopThread

# What still runs then had its time when the partitions were taken away.
STOP_SECONDS = 2.0


class AsyncWorkers:
    """Up to `most` messages at once, each awaited by a task; tasks are made as they are needed."""

    def __init__(self, engine: Engine, loop: LoopThread, most: int) -> None:
        self._engine = engine
        self._thread = loop
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_called = False

    def start(self) -> None:
        """Nothing to do: tasks begin with the first message."""

    def call(self) -> None:
        """Give the loop a turn if something is ready."""
        if self._engine.lanes.ready and not self._is_called:
            self._is_called = True
            self._thread.loop.call_soon_threadsafe(self._hire)

    def stop(self) -> None:
        """Wait for the messages that are at work, within a bound."""
        self._engine.stop()

        async def ended() -> None:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=STOP_SECONDS)

        self._thread.run(ended())

    @property
    def busy(self) -> int:
        """Tasks at work."""
        return len(self._tasks)

    def _hire(self) -> None:
        """Start a task; runs on the loop."""
        self._is_called = False
        if len(self._tasks) >= self._most:
            return
        with self._engine.lock:
            chunk = self._engine.turn([], 0, 0)
            more = bool(self._engine.lanes.ready)
        if not chunk:
            return
        task = asyncio.get_running_loop().create_task(self._work(chunk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if more:
            self._thread.loop.call_soon(self._hire)

    def _wake(self) -> None:
        self._engine.wake()
        self._hire()

    async def _work(self, chunk: list[Item]) -> None:
        engine = self._engine
        while chunk:
            started_ns = monotonic_ns()
            done, due_ms = await self._run(chunk)
            engine.pace.note(done, monotonic_ns() - started_ns)
            with engine.lock:
                chunk = engine.turn(chunk, done, due_ms)
                more = bool(engine.lanes.ready)
                wait_ms = engine.wake_locked() if due_ms else None
            if wait_ms is not None:
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake)
            if more and len(self._tasks) < self._most:
                self._hire()

    async def _run(self, chunk: list[Item]) -> tuple[int, int]:
        engine = self._engine
        deadline_ns = monotonic_ns() + CHUNK_MS_MAX * NS_PER_MS
        done = 0
        while done < len(chunk) and chunk[done][0].track.open:
            if engine.may_be_parked:
                done, due_ms = await asyncio.to_thread(engine.put_away_parked, chunk, done)
                if due_ms or done == len(chunk):
                    return done, due_ms
            done, error = await self._await_all(chunk, done, deadline_ns)
            if error is not None:
                due_ms = await asyncio.to_thread(engine.failed, chunk[done], error)
                if due_ms:
                    return done, due_ms
                done += 1
            elif monotonic_ns() > deadline_ns:
                break
        return done, 0

    async def _await_all(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        engine = self._engine
        spec, execution = engine.spec, engine.execution
        last = len(chunk) - 1
        for index in range(start, len(chunk)):
            item = chunk[index]
            if not item[0].track.open:
                return index, None
            if spec.order == "latest" and index < last and is_covered(item, chunk[index + 1]):
                continue
            try:
                # What has to be read first must not hold up the other handlers of the loop.
                is_lazy = type(item[2]) in LAZY_RECORDS
                if execution.is_plain:
                    record = item[2]
                    data = await asyncio.to_thread(record.value) if is_lazy else record.value()
                    await spec.function(spec.decoder(data))
                    execution.confirm_items((item,))
                else:
                    message = engine.message(item)
                    if is_lazy:
                        value = await asyncio.to_thread(execution.payload, message)
                    else:
                        value = execution.payload(message)
                    await spec.function(*arguments(spec, value, message, None))
                    execution.confirm([message])
            except BaseException as error:
                return index, error
            if engine.may_be_parked or monotonic_ns() > deadline_ns:
                return index + 1, None
        return len(chunk), None

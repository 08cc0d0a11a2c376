"""Runs a worker's chunk: together where the handler allows it, apart after an error.

A chunk is a list of messages from the scheduler. A part of it at a time goes to the handler; a
message that fails is retried in place or put away, and one whose key waits in the retry table is
parked behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.message import LAZY_RECORDS, Message
from headrace.errors import Unavailable
from headrace.handlers.execution import (
    Execution,
    IsOpen,
    Position,
    Positions,
    Reached,
    Revoked,
    arguments,
)
from headrace.handlers.failures import is_outage
from headrace.handlers.lanes import Item
from headrace.handlers.policies import Again
from headrace.handlers.scheduler import NS_PER_MS, ChunkResult, Scheduler
from headrace.store.fingerprints import describe

if TYPE_CHECKING:
    from headrace.handlers.failures import Failures

# After this long a worker gives back what it has not begun, for others to take.
CHUNK_MS_MAX = 20

# Runs messages and saves their positions. Raises Revoked, and has done nothing, when the last
# argument says that a partition was taken away.
Run = Callable[[Sequence[Message], Positions, IsOpen], None]

_log = logging.getLogger("headrace.handlers")


class _Part(NamedTuple):
    """Messages of a chunk that the handler gets now, from `start` on."""

    items: Sequence[Item]
    start: int
    deadline_ns: int


class _GiveBack(NamedTuple):
    """What is left of a chunk goes back to its lanes, to run at a time or (None) at once."""

    retry_at_ms: int | None = None


# What a chunk asks its driver to do: call the handler, or call something that may block.
_Step = _Part | Callable[[], Any]


class ChunkRunner:
    """Runs the chunks of one handler; safe from many threads."""

    def __init__(
        self,
        execution: Execution,
        failures: Failures,
        scheduler: Scheduler,
        run: Run | None = None,
    ) -> None:
        spec = execution.spec
        self._spec = spec
        self._execution = execution
        self._failures = failures
        self._scheduler = scheduler
        self._run = run or self._run_stored
        self._keeps_positions = spec.once in ("offsets", "transaction")
        self._is_latest = spec.order == "latest"
        self._run_part: Callable[[Sequence[Item], int, int], Reached] = self._one_by_one
        if execution.is_plain and spec.batch:
            self._run_part = self._as_plain_batch
        elif execution.is_plain and not spec.is_async:
            self._run_part = execution.run_plain
        elif spec.batch:
            self._run_part = self._as_batch
        elif "tx" in spec.roles or "out" in spec.roles:
            # Without one of these the effects are elsewhere, and a rollback would repeat them.
            self._run_part = self._as_group

    def run(self, chunk: list[Item]) -> ChunkResult:
        """Run a chunk in this thread."""
        steps = self._steps(chunk)
        step = next(steps)
        while not isinstance(step, ChunkResult):
            step = steps.send(self._run_part(*step) if isinstance(step, _Part) else step())
        return step

    async def run_async(self, chunk: list[Item]) -> ChunkResult:
        """Run a chunk of an async handler on its event loop; what blocks runs in a thread."""
        steps = self._steps(chunk)
        step = next(steps)
        while not isinstance(step, ChunkResult):
            if isinstance(step, _Part):
                step = steps.send(await self._await_part(*step))
            else:
                step = steps.send(await asyncio.to_thread(step))
        return step

    def _steps(self, chunk: list[Item]) -> Generator[_Step | ChunkResult, Any, None]:
        """The loop over a chunk: `run` carries out each step and sends back what it returned.

        The last step is the chunk's result.
        """
        deadline_ns = monotonic_ns() + CHUNK_MS_MAX * NS_PER_MS
        done = 0
        # What is left of a partition that was taken away is dropped when it is given back.
        while done < len(chunk) and chunk[done][0].track.open:
            part = chunk
            if self._failures.parking:
                done, give_back = yield partial(self._park_held, chunk, done)
                if give_back is not None:
                    yield ChunkResult(done, give_back.retry_at_ms)
                if done == len(chunk):
                    break
                part = chunk[: self._free_until(chunk, done + 1)]
            done, error = yield _Part(part, done, deadline_ns)
            if isinstance(error, Revoked):
                break
            if error is not None:
                give_back = yield partial(self.put_away_failed, chunk[done], error)
                if give_back is not None:
                    yield ChunkResult(done, give_back.retry_at_ms)
                done += 1
            elif monotonic_ns() > deadline_ns:
                break
        yield ChunkResult(done)

    def put_away_failed(self, item: Item, error: BaseException) -> _GiveBack | None:
        """Decide on a failed message: None once it is put away, else when it is tried again."""
        if isinstance(error, Unavailable):
            return _GiveBack(self._scheduler.pause_all(error))
        if not item[0].track.open and self._spec.delivery != "at_most_once":
            # The next owner of the partition meets the message and decides on it. Here it is not
            # done, because what is done is still committed; given back, it is dropped.
            return _GiveBack()
        attempt = self._scheduler.attempt(item)
        step = self._failures.step(error, attempt)
        if isinstance(step, Again):
            self._scheduler.count_attempt(item, attempt)
            return _GiveBack(self._scheduler.clock.monotonic_ms() + step.delay_ms)
        try:
            self._give_up(item, error, attempt)
            self._keep_positions([item])
        except Revoked:
            return _GiveBack()
        except Exception as problem:
            return _GiveBack(self._scheduler.pause_all(problem))
        return None

    def _park_held(self, chunk: Sequence[Item], start: int) -> tuple[int, _GiveBack | None]:
        """Park messages behind their keys, up to the first that may run."""
        end = start
        give_back: _GiveBack | None = None
        try:
            while end < len(chunk) and chunk[end][0].track.open:
                message = self._identified(chunk[end])
                if not (self._failures.is_waiting(message) and self._failures.park_behind(message)):
                    break
                end += 1
        except Exception as problem:
            give_back = _GiveBack(self._scheduler.pause_all(problem))
        try:
            self._keep_positions(chunk[start:end])
        except Revoked:
            return start, _GiveBack()
        except Exception as problem:
            return start, _GiveBack(self._scheduler.pause_all(problem))
        return end, give_back

    def _free_until(self, chunk: Sequence[Item], start: int) -> int:
        """Where the next message is whose key waits; all before it may run together."""
        for index in range(start, len(chunk)):
            if self._failures.is_waiting(self._identified(chunk[index])):
                return index
        return len(chunk)

    def _give_up(self, item: Item, error: BaseException, attempt: int) -> None:
        try:
            self._failures.give_up(self._identified(item), error, attempt)
        except Exception as problem:
            if is_outage(problem):
                raise
            # A retry would fail the same way, and everything would wait for it.
            _log.exception("%s: a message could not be put away as it is", self._spec.name)
            self._failures.dead_letters.give_up(
                Message.from_record(item[2]), describe(error, self._spec.name), attempt
            )

    def _keep_positions(self, items: Sequence[Item]) -> None:
        """Save the positions of messages that were put away, which no effect of theirs does."""
        if items and self._keeps_positions:
            self._run([], positions(items), lambda: are_open(items))

    def _run_stored(self, messages: Sequence[Message], at: Positions, is_open: IsOpen) -> None:
        if not is_open():
            raise Revoked
        self._execution.run_messages(messages, None, at)

    def _run_items(self, items: Sequence[Item], messages: Sequence[Message]) -> None:
        self._run(messages, positions(items), lambda: are_open(items))

    def _message(self, item: Item) -> Message:
        """The message of an item, with its id and the number of this attempt."""
        return self._execution.message(item, self._scheduler.attempt(item))

    def _identified(self, item: Item) -> Message:
        try:
            return self._message(item)
        except Exception:
            # It lacks the id that its handler needs; the default id will do here.
            return Message.from_record(item[2])

    def _messages(
        self, chunk: Sequence[Item], start: int
    ) -> tuple[list[Message], BaseException | None]:
        """The messages up to the first that has no id, and that one's error."""
        messages: list[Message] = []
        for item in chunk[start:]:
            try:
                messages.append(self._message(item))
            except BaseException as error:
                return messages, error
        return messages, None

    def _one_by_one(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        """Run each message alone until the end, an error or the deadline."""
        for index in range(start, len(chunk)):
            item = chunk[index]
            if self._is_latest and is_covered(chunk, index):
                continue
            try:
                self._run_items([item], [self._message(item)])
            except BaseException as error:
                return index, error
            if monotonic_ns() > deadline_ns:
                return index + 1, None
        return len(chunk), None

    def _as_group(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        """Run messages of different lanes in one transaction; after an error, one by one."""
        messages, error = self._messages(chunk, start)
        if not messages:
            return start, error
        end = start + len(messages)
        try:
            self._run_items(chunk[start:end], messages)
        except BaseException as failure:
            if len(messages) == 1 or isinstance(failure, Unavailable):
                return start, failure
            return self._one_by_one(chunk[:end], start, deadline_ns)
        return end, error

    def _as_batch(self, chunk: Sequence[Item], start: int, _deadline_ns: int) -> Reached:
        """Hand over a list; one that fails is halved until the poison message is alone."""
        messages, error = self._messages(chunk, start)

        def run(first: int, end: int) -> None:
            self._run_items(chunk[start + first : start + end], messages[first:end])

        reached, failure = _halve(run, 0, len(messages))
        return start + reached, failure or error

    def _as_plain_batch(self, chunk: Sequence[Item], start: int, _deadline_ns: int) -> Reached:
        """The same for a handler that takes nothing but the payloads."""
        execution = self._execution
        values, error = execution.payloads(chunk, start)

        def run(first: int, end: int) -> None:
            if not are_open(chunk[start + first : start + end]):
                raise Revoked
            execution.call_batch(values[first:end])

        reached, failure = _halve(run, 0, len(values))
        execution.confirm_items(chunk[start : start + reached])
        return start + reached, failure or error

    async def _await_part(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        """Await each message of an async handler until the end, an error or the deadline."""
        for index in range(start, len(chunk)):
            item = chunk[index]
            if not item[0].track.open:
                return index, None
            if self._is_latest and is_covered(chunk, index):
                continue
            try:
                await self._await_one(item)
            except BaseException as error:
                return index, error
            if monotonic_ns() > deadline_ns:
                return index + 1, None
        return len(chunk), None

    async def _await_one(self, item: Item) -> None:
        spec, execution, record = self._spec, self._execution, item[2]
        # A value that must be read first must not hold up the other handlers of the loop.
        is_lazy = type(record) in LAZY_RECORDS
        if execution.is_plain:
            data = await asyncio.to_thread(record.value) if is_lazy else record.value()
            await spec.function(spec.decoder(data))
            execution.confirm_items((item,))
            return
        message = self._message(item)
        if is_lazy:
            value = await asyncio.to_thread(execution.payload, message)
        else:
            value = execution.payload(message)
        await spec.function(*arguments(spec, value, message, None))
        execution.confirm([message])


def _halve(run: Callable[[int, int], None], first: int, end: int) -> Reached:
    """Run a range, and its halves after an error, up to the first message that fails alone."""
    if first == end:
        return first, None
    try:
        run(first, end)
    except BaseException as failure:
        # Halving is no use when no message is at fault.
        if end - first == 1 or isinstance(failure, Unavailable):
            return first, failure
        middle = (first + end) // 2
        reached, inside = _halve(run, first, middle)
        return (reached, inside) if inside else _halve(run, middle, end)
    return end, None


def is_covered(chunk: Sequence[Item], index: int) -> bool:
    """Whether a newer message of the same key follows, whose run covers this one too."""
    if index + 1 == len(chunk):
        return False
    lane = chunk[index][0]
    return lane is chunk[index + 1][0] and not lane.shared


def are_open(items: Sequence[Item]) -> bool:
    """Whether none of the items' partitions was taken away."""
    return all(lane.track.open for lane, _, _ in items)


def positions(items: Sequence[Item]) -> Positions:
    """Where each partition is once these items are done."""
    found: dict[tuple[str, int], Position] = {}
    for lane, _, record in items:
        track = lane.track
        place, offset = (track.topic, track.partition), record.offset()
        # A recreated topic begins before the offset that was saved.
        first = found[place].first if place in found else max(offset, track.base)
        found[place] = Position(offset + 1, track.epoch, first)
    return found

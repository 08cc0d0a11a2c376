"""Requests that wait: each completes when its condition comes true, or when its time is up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.broker.clock import Timers
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message
from headrace.timing.wheel import Timer

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition

log = logging.getLogger(__name__)


class Pending:
    """A response to come: an API function returns it, and it is resolved once.

    Much lighter than an asyncio future: it runs its one callback at once instead of through the
    loop, which matters when every acks=all produce makes one.
    """

    __slots__ = ("_callback", "blocks", "response")

    def __init__(self, *, blocks: bool = True) -> None:
        self.response: Message | None = None
        self._callback: Callable[[Pending], None] | None = None
        # False lets the connection execute its next request before this response is sent
        # (responses still leave in order): right for produces, which only wait for a sync.
        self.blocks = blocks

    def resolve(self, response: Message) -> None:
        """Give the response; a second call is ignored (a timeout may race with success)."""
        if self.response is None:
            self.response = response
            if self._callback is not None:
                self._callback(self)

    async def wait(self) -> Message:
        """Wait for the response."""
        if self.response is None:
            resolved = asyncio.Event()
            self.on_resolved(lambda _: resolved.set())
            await resolved.wait()
        assert self.response is not None
        return self.response

    def on_resolved(self, callback: Callable[[Pending], None]) -> None:
        """Run `callback` when resolved, or now if it already is."""
        self._callback = callback
        if self.response is not None:
            callback(self)


class Waiting:
    """A request that waits under some keys until `try_complete` returns True."""

    __slots__ = ("_timer", "done", "keys")

    def __init__(self) -> None:
        self.done = False
        self.keys: tuple[Hashable, ...] = ()
        self._timer: Timer[Callable[[], None]] | None = None

    def try_complete(self) -> bool:
        """Respond and return True if the condition holds now; else change nothing."""
        raise AssertionError("a waiting request must define when it is complete")

    def expire(self) -> None:
        """Respond with what there is: the time is up."""
        raise AssertionError("a waiting request must define what happens when its time is up")

    def fail(self) -> None:
        """Respond with UNKNOWN_SERVER_ERROR: completing or expiring it raised an exception."""
        raise AssertionError("a waiting request must define what happens when it fails")


class Purgatory:
    """Waiting requests by key, with their deadlines on a timing wheel.

    A key is what makes a condition come true: a partition that grows.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_key: dict[Hashable, dict[Waiting, None]] = {}
        self.size = 0

    def park(self, waiting: Waiting, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Hold a request that could not complete now."""
        waiting.keys = tuple(keys)
        for key in waiting.keys:
            watchers = self._by_key.get(key)
            if watchers is None:
                watchers = self._by_key[key] = {}
            watchers[waiting] = None
        self.size += 1

        def expire() -> None:
            waiting._timer = None
            if not waiting.done:
                self._expire(waiting)

        waiting._timer = self._timers.call_later(timeout_ms, expire)

    def check(self, key: Hashable) -> None:
        """Something about `key` changed: complete what can be completed, oldest first."""
        watchers = self._by_key.get(key)
        if watchers:
            for waiting in tuple(watchers):
                if waiting.done:
                    continue
                try:
                    completed = waiting.try_complete()
                except Exception:
                    # One failure must not keep the others waiting.
                    self._fail(waiting)
                    continue
                if completed:
                    self.forget(waiting)

    def expire_all(self) -> None:
        """Respond to every request with what there is, as if its time were up."""
        for watchers in tuple(self._by_key.values()):
            for waiting in tuple(watchers):
                if not waiting.done:
                    self._expire(waiting)

    def has_waiting(self, key: Hashable) -> bool:
        """Whether anything waits under `key`."""
        return key in self._by_key

    def forget(self, waiting: Waiting) -> None:
        """Stop holding a request, without a response (its client is gone)."""
        if waiting.done:
            return
        waiting.done = True
        self.size -= 1
        for key in waiting.keys:
            watchers = self._by_key.get(key)
            if watchers is not None:
                watchers.pop(waiting, None)
                if not watchers:
                    del self._by_key[key]
        if waiting._timer is not None:
            waiting._timer.cancel()
            waiting._timer = None

    def _expire(self, waiting: Waiting) -> None:
        self.forget(waiting)
        try:
            waiting.expire()
        except Exception:
            self._fail(waiting)

    def _fail(self, waiting: Waiting) -> None:
        """Respond to a request whose code raised the current exception, as the router does."""
        log.exception("a waiting request failed")
        self.forget(waiting)
        try:
            waiting.fail()
        except Exception:
            log.exception("a waiting request that failed gets no response")


class PartitionResult(Protocol):
    """The part of a response for one partition."""

    error_code: int


ResultT = TypeVar("ResultT", bound=PartitionResult)
# A partition, the offset after what was written to it, and its result in the response.
SyncedTarget = tuple["Partition", int, ResultT]


class SyncedResponse(Waiting, Generic[ResultT]):
    """A response whose writes are done but not yet all durable; those that fail are refused."""

    __slots__ = ("_pending", "_refuse", "_response", "_targets")

    def __init__(
        self,
        targets: list[SyncedTarget[ResultT]],
        response: Message,
        pending: Pending,
        refuse: Callable[[ResultT, ErrorCode], None],
    ) -> None:
        super().__init__()
        self._targets = targets
        self._response = response
        self._pending = pending
        self._refuse = refuse

    def park(self, node: Node, timeout_ms: int) -> None:
        """Hold the response until every target is durable; their syncs start at once."""
        partitions = [target[0] for target in self._targets]
        node.produce_purgatory.park(self, partitions, timeout_ms)
        for partition in partitions:
            partition.sync()

    def try_complete(self) -> bool:
        for partition, end_offset, result in self._targets:
            if partition.log.high_watermark < end_offset and not result.error_code:
                error = partition.error
                if not error:
                    return False
                self._refuse(result, error)
        self._pending.resolve(self._response)
        return True

    def expire(self) -> None:
        for partition, end_offset, result in self._targets:
            if partition.log.high_watermark < end_offset and not result.error_code:
                self._refuse(result, ErrorCode.REQUEST_TIMED_OUT)
        self._pending.resolve(self._response)

    def fail(self) -> None:
        for _, _, result in self._targets:
            if not result.error_code:
                self._refuse(result, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._pending.resolve(self._response)

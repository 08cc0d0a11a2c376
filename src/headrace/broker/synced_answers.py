"""An answer that tells of several partitions, and waits until what it tells is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.broker.partition import Partition
from headrace.broker.pending import Pending
from headrace.broker.purgatory import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

if TYPE_CHECKING:
    from headrace.broker.node import Node


class Result(Protocol):
    """What an answer tells of one partition."""

    error_code: int


ResultT = TypeVar("ResultT", bound=Result)
# A partition, the offset behind what was written to it, and what is told of it.
SyncedTarget = tuple[Partition, int, ResultT]


class SyncedAnswer(Waiting, Generic[ResultT]):
    """An answer whose writes are done and not yet all durable; one that cannot be is refused."""

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
        """Hold the answer until every target is durable; their syncs start at once."""
        partitions = [target[0] for target in self._targets]
        node.produces.park(self, partitions, timeout_ms)
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

"""Chunks: how the messages that a worker took are run together, and taken apart on an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

from headrace.handlers.execution import Execution, IsOpen, Positions, Reached, Revoked
from headrace.handlers.lanes import Item

if TYPE_CHECKING:
    from headrace.client.message import Message

# Raises Revoked, and has done nothing, when the last says that a partition was taken away.
Run = Callable[[Sequence["Message"], Positions, IsOpen], None]


class Chunks:
    """Runs chunks of one handler, in the way that its promise asks for."""

    def __init__(
        self,
        execution: Execution,
        message_of: Callable[[Item], Message],
        run: Run,
        is_away: Callable[[BaseException], bool],
    ) -> None:
        spec = execution.spec
        self._execution = execution
        self._message_of = message_of
        self._run = run
        # Says that an error is no message's fault, so that taking a chunk apart is no use.
        self._is_away = is_away
        self._is_latest = spec.order == "latest"
        self.run: Callable[[Sequence[Item], int, int], Reached] = self.one_by_one
        if execution.is_plain and spec.batch:
            self.run = self.as_plain_batch
        elif execution.is_plain and not spec.is_async:
            self.run = execution.run_plain
        elif spec.batch:
            self.run = self.as_batch
        elif "tx" in spec.roles or "out" in spec.roles:
            # Without one of these the effects are elsewhere, and a rollback would repeat them.
            self.run = self.as_group

    def one_by_one(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        """Run each message alone until the end, an error or the deadline."""
        last = len(chunk) - 1
        for index in range(start, len(chunk)):
            item = chunk[index]
            if self._is_latest and index < last and is_covered(item, chunk[index + 1]):
                continue
            try:
                self._run_items([item], [self._message_of(item)])
            except BaseException as error:
                return index, error
            if monotonic_ns() > deadline_ns:
                return index + 1, None
        return len(chunk), None

    def as_group(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        """Run messages of different lanes in one transaction; after an error, one by one."""
        messages, error = self._messages(chunk, start)
        if not messages:
            return start, error
        end = start + len(messages)
        try:
            self._run_items(chunk[start:end], messages)
        except BaseException as failure:
            if len(messages) == 1 or self._is_away(failure):
                return start, failure
            return self.one_by_one(chunk[:end], start, deadline_ns)
        return end, error

    def as_batch(self, chunk: Sequence[Item], start: int, _deadline_ns: int) -> Reached:
        """Hand over a list; one that fails is halved until the poison message is alone."""
        messages, error = self._messages(chunk, start)

        def run(first: int, end: int) -> None:
            self._run_items(chunk[start + first : start + end], messages[first:end])

        reached, failure = self._split(run, 0, len(messages))
        return start + reached, failure or error

    def as_plain_batch(self, chunk: Sequence[Item], start: int, _deadline_ns: int) -> Reached:
        """The same for a handler that wants nothing but the payloads."""
        execution = self._execution
        values, error = execution.payloads(chunk, start)

        def run(first: int, end: int) -> None:
            if not are_open(chunk[start + first : start + end]):
                raise Revoked
            execution.call_batch(values[first:end])

        reached, failure = self._split(run, 0, len(values))
        execution.confirm_items(chunk[start : start + reached])
        return start + reached, failure or error

    def _run_items(self, items: Sequence[Item], messages: Sequence[Message]) -> None:
        self._run(messages, positions(items), lambda: are_open(items))

    def _split(self, run: Callable[[int, int], None], first: int, end: int) -> Reached:
        """Run a part, and its halves after an error, up to the first message that fails alone."""
        if first == end:
            return first, None
        try:
            run(first, end)
        except BaseException as failure:
            if end - first == 1 or self._is_away(failure):
                return first, failure
            middle = (first + end) // 2
            reached, inside = self._split(run, first, middle)
            return (reached, inside) if inside else self._split(run, middle, end)
        return end, None

    def _messages(
        self, chunk: Sequence[Item], start: int
    ) -> tuple[list[Message], BaseException | None]:
        """The messages up to the first that has no id, and that one's error."""
        messages: list[Message] = []
        for item in chunk[start:]:
            try:
                messages.append(self._message_of(item))
            except BaseException as error:
                return messages, error
        return messages, None


def is_covered(item: Item, following: Item) -> bool:
    """Whether a newer message of the same key is at hand, whose run covers this one too."""
    return item[0] is following[0] and not item[0].shared


def are_open(items: Sequence[Item]) -> bool:
    """Whether none of the items' partitions was taken away."""
    return all(lane.track.open for lane, _, _ in items)


def positions(items: Sequence[Item]) -> Positions:
    """Where each partition is once these items are done, its owner's epoch, where they begin."""
    found: dict[tuple[str, int], tuple[int, int, int]] = {}
    for lane, _, record in items:
        track = lane.track
        place, offset = (track.topic, track.partition), record.offset()
        # A topic that was made anew begins before the place that was saved.
        first = found[place][2] if place in found else max(offset, track.base)
        found[place] = offset + 1, track.epoch, first
    return found

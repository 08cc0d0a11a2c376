"""The partitions that a consumer reads: assigned by its group, or by the caller."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.consumer.commits import Commits, Consumed
from headrace.client.consumer.group_start import GroupStart
from headrace.client.consumer.offsets import OffsetReader
from headrace.client.consumer.start import Start
from headrace.client.errors import CommitFailed, NoStart, WhereToStart
from headrace.client.retry_loop import retry
from headrace.protocol.partitions import TopicPartition

# How often a topic that is read as a whole is checked for new partitions.
WATCH_SECONDS = 5.0
UNREADY_SECONDS = 0.01

# Called with TopicPartitions; on_assign may return or change them to start elsewhere.
OnAssign = Callable[[list[Any]], Iterable[Any] | None]
OnRevoke = Callable[[list[Any]], object]
# A topic as a whole, (topic, partition), (topic, partition, offset) or a TopicPartition.
Assignable = str | tuple[str, int] | tuple[str, int, int] | Any

_log = logging.getLogger("headrace.client")


class Assignment:
    """Starts partitions at the right offset, and calls the listeners."""

    def __init__(
        self,
        client: Any,
        offsets: OffsetReader,
        commits: Commits,
        *,
        group_start: GroupStart | None,
        start: Start | None,
        is_cooperative: bool,
        consumed: Consumed | None,
    ) -> None:
        # The partitions, each with the offset where it was started.
        self.owned: dict[TopicPartition, int] = {}
        # How often partitions were revoked.
        self.changes = 0
        # Why the group's assignment was not accepted.
        self.refusal: WhereToStart | None = None
        # What a listener has raised; the poll that called it raises it.
        self.failure: Exception | None = None
        self.is_closing = False
        # Whether a listener is running.
        self.is_listening = False
        # Called with partitions that are no longer read, or from another offset.
        self.on_left: Callable[[list[TopicPartition]], object] = len
        self._client = client
        self._offsets = offsets
        self._commits = commits
        self._group_start = group_start
        self._start = start
        self._is_cooperative = is_cooperative
        self._consumed = consumed
        self._watched: set[str] = set()
        self._is_subscribed = False
        self._starting: dict[TopicPartition, Any] = {}
        # Paused by a listener: done once the partitions are assigned.
        self._pause_later: list[Any] = []
        self._paused: set[TopicPartition] = set()

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnAssign | None,
        on_revoke: OnRevoke | None,
        on_lost: OnRevoke | None,
    ) -> None:
        """Join the group for these topics."""

        def assigned(_client: Any, partitions: list[Any]) -> None:
            with self._keep_failure():
                self._assigned(partitions, on_assign)

        def revoked(_client: Any, partitions: list[Any]) -> None:
            with self._keep_failure():
                self._leave(partitions, on_revoke, is_lost=False)

        def lost(_client: Any, partitions: list[Any]) -> None:
            with self._keep_failure():
                self._leave(partitions, on_lost or on_revoke, is_lost=True)

        self._watched.clear()
        self._is_subscribed = True
        self._client.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def assign(self, asked: Iterable[Assignable]) -> None:
        """Read these partitions without a group's assignment; whole topics with new partitions."""
        starts: list[Any] = []
        partitions: list[TopicPartition] = []
        self._watched.clear()
        for one in asked:
            if isinstance(one, str):
                self._watched.add(one)
                partitions += [(one, number) for number in range(self._offsets.partitions(one))]
            else:
                it = LibraryPartition(*one) if isinstance(one, tuple) else one
                if it.offset >= 0:
                    starts.append(it)
                else:
                    partitions.append((it.topic, it.partition))
        starts += self._find_starts(partitions)
        self._is_subscribed = False
        self.on_left(list(self.owned))
        self._unpause(self.owned)
        self._client.assign(starts)
        self.owned = _started(starts)

    def unassign(self) -> None:
        """Leave the group, or release what was assigned."""
        self._watched.clear()
        self._unpause(self.owned)
        self._client.unsubscribe()
        self._client.unassign()
        self.on_left(list(self.owned))
        self.owned.clear()

    def watch(self) -> None:
        """Read new partitions of topics that are read as a whole, from their beginning."""
        for topic in self._watched:
            try:
                count = self._offsets.partitions(topic)
                new = [
                    (topic, number) for number in range(count) if (topic, number) not in self.owned
                ]
                starts = self._find_starts(new, are_new=True)
            except KafkaException as problem:
                _log.warning("the partitions of %s could not be checked: %s", topic, problem)
                continue
            if starts:
                self._client.incremental_assign(starts)
                self.owned |= _started(starts)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue from another offset; inside a listener, start there."""
        if self.is_listening and (topic, partition) in self._starting:
            self._starting[topic, partition].offset = offset
            return
        target = LibraryPartition(topic, partition, offset)
        retry(
            lambda: self._offsets.insist(lambda: self._client.seek(target)),
            _unready_pause_s,
            timeout_s=self._offsets.timeout_s,
        )
        if self._consumed is not None:
            self._consumed.move((topic, partition), offset)
        self.on_left([(topic, partition)])

    def restart(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition from another offset after the library has given up on its offset."""
        self.on_left([(topic, partition)])
        if self._is_cooperative or not self._is_subscribed:
            self._client.incremental_unassign([LibraryPartition(topic, partition)])
            self._client.incremental_assign([LibraryPartition(topic, partition, offset)])
            return
        # With the older assignors only the whole assignment can be changed.
        begin = {**self.owned, (topic, partition): offset}
        others = [LibraryPartition(*it) for it in self.owned if it != (topic, partition)]
        for it in self._client.position(others):
            if it.offset >= 0:
                begin[it.topic, it.partition] = it.offset
        self._client.assign([LibraryPartition(*it, at) for it, at in begin.items()])

    def pause(self, partitions: list[Any]) -> None:
        """Read nothing from these; inside a listener, from their start on."""
        if self.is_listening:
            self._pause_later += partitions
        else:
            self._pause(partitions)

    def resume(self, partitions: list[Any]) -> None:
        """Read from these again."""
        self._paused.difference_update((it.topic, it.partition) for it in partitions)
        self._client.resume(partitions)

    @contextmanager
    def _keep_failure(self) -> Iterator[None]:
        # Raised through the library, an error would lose the records that it has read.
        try:
            yield
        except Exception as problem:
            self.failure = problem

    def _find_starts(self, partitions: list[TopicPartition], are_new: bool = False) -> list[Any]:
        """Where to start in partitions that no group has assigned."""
        if not partitions:
            return []
        if self._group_start is not None:
            starts, new = self._group_start.find(partitions)
            self._commit_start(new)
            return starts
        if are_new:
            offsets = dict.fromkeys(partitions, OFFSET_BEGINNING)
        elif self._start is None:
            raise NoStart(
                "there is no start: the consumer has no group, and auto.offset.reset is none",
                'write start="earliest" or start="latest"',
            )
        else:
            offsets = self._offsets.at(partitions, self._start, time.time_ns() // 1_000_000)
        return [LibraryPartition(*partition, offset) for partition, offset in offsets.items()]

    def _assigned(self, partitions: list[Any], listener: OnAssign | None) -> None:
        assert self._group_start is not None
        assign = self._client.incremental_assign if self._is_cooperative else self._client.assign
        if self.is_closing:
            # Too late: the group is being left, and its coordinator is no longer asked.
            assign([])
            return
        try:
            starts, new = self._group_start.find([(it.topic, it.partition) for it in partitions])
        except BaseException as problem:
            # Without an assignment the library would choose an offset itself.
            assign([])
            if isinstance(problem, WhereToStart):
                self.refusal = problem
            raise
        self._commit_start(new)
        self._starting = {(it.topic, it.partition): it for it in starts}
        try:
            if listener is not None:
                self.is_listening = True
                for it in listener(starts) or ():
                    self._starting[it.topic, it.partition] = it
        finally:
            self.is_listening = False
            starts = list(self._starting.values())
            self._starting = {}
            assign(starts)
            self.owned = (self.owned if self._is_cooperative else {}) | _started(starts)
        if self._pause_later:
            paused, self._pause_later = self._pause_later, []
            self._pause(paused)

    def _leave(self, partitions: list[Any], listener: OnRevoke | None, *, is_lost: bool) -> None:
        left = [(it.topic, it.partition) for it in partitions]
        try:
            if listener is not None:
                self.is_listening = True
                listener(partitions)
        finally:
            self.is_listening = False
            self._unpause(left)
            for partition in left:
                self.owned.pop(partition, None)
            self.changes += 1
            if self._consumed is not None:
                done = self._consumed.take(left)
                if not is_lost:
                    self._commit_last(done)
            self.on_left(left)

    def _pause(self, partitions: list[Any]) -> None:
        self._paused.update((it.topic, it.partition) for it in partitions)
        self._client.pause(partitions)

    def _unpause(self, partitions: Iterable[TopicPartition]) -> None:
        """Release partitions unpaused: the library would not read them when they come back."""
        paused = [
            LibraryPartition(*partition) for partition in partitions if partition in self._paused
        ]
        if paused:
            self.resume(paused)

    def commit_done(self) -> None:
        """Commit all that the caller has been given, and wait."""
        if self._consumed is not None:
            self._commit_last(self._consumed.take())

    def _commit_last(self, done: dict[TopicPartition, int]) -> None:
        try:
            self._commits.sync(done)
        except CommitFailed as problem:
            _log.warning("%s", problem)

    def _commit_start(self, new: list[Any]) -> None:
        """Commit where the group starts; if that fails, the next member to get them does it."""
        if not new:
            return
        assert self._group_start is not None
        try:
            self._commits.sync(new)
        except CommitFailed as problem:
            _log.warning("%s", problem)
        else:
            self._group_start.began({it.topic for it in new})


def _unready_pause_s(problem: Exception) -> float | None:
    # A partition that was only just assigned is not being read yet.
    is_unready = isinstance(problem, KafkaException) and problem.args[0].code() == KafkaError._STATE
    return UNREADY_SECONDS if is_unready else None


def _started(starts: Iterable[Any]) -> dict[TopicPartition, int]:
    return {(it.topic, it.partition): it.offset for it in starts}

"""The partitions that a consumer reads now: given by its group, or taken by itself."""

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
from headrace.client.consumer.offsets import Offsets
from headrace.client.consumer.start import Start
from headrace.client.errors import CommitFailed, NoStart, WhereToStart
from headrace.client.retry_loop import retry
from headrace.protocol.partitions import TopicPartition

# A topic taken as a whole is looked at so often for new partitions.
WATCH_SECONDS = 5.0
UNREADY_SECONDS = 0.01

# Called with TopicPartitions; what on_assign returns (or changes) says where to begin.
OnAssign = Callable[[list[Any]], Iterable[Any] | None]
OnRevoke = Callable[[list[Any]], object]
# A topic as a whole, (topic, partition), (topic, partition, offset) or a TopicPartition.
Asked = str | tuple[str, int] | tuple[str, int, int] | Any

_log = logging.getLogger("headrace.client")


class Assignment:
    """Begins partitions where they should be begun, and tells the listeners."""

    def __init__(
        self,
        client: Any,
        offsets: Offsets,
        commits: Commits,
        *,
        beginnings: GroupStart | None,
        start: Start | None,
        is_cooperative: bool,
        consumed: Consumed | None,
    ) -> None:
        # The partitions, each with the offset where it was begun.
        self.owned: dict[TopicPartition, int] = {}
        # How often partitions were taken away.
        self.changes = 0
        # Why the group's assignment was not taken.
        self.refusal: WhereToStart | None = None
        # What a listener has raised; the poll that called it raises it.
        self.failure: Exception | None = None
        self.is_closing = False
        # Whether a listener is running.
        self.is_listening = False
        # Called with partitions that are not read any more, or from another place.
        self.on_left: Callable[[list[TopicPartition]], object] = len
        self._client = client
        self._offsets = offsets
        self._commits = commits
        self._beginnings = beginnings
        self._start = start
        self._is_cooperative = is_cooperative
        self._consumed = consumed
        self._watched: set[str] = set()
        self._is_subscribed = False
        self._starting: dict[TopicPartition, Any] = {}
        self._paused: list[Any] = []
        self._resting: set[TopicPartition] = set()

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

    def assign(self, asked: Iterable[Asked]) -> None:
        """Take partitions without a group's help; those of whole topics also when they are new."""
        starts: list[Any] = []
        places: list[TopicPartition] = []
        self._watched.clear()
        for one in asked:
            if isinstance(one, str):
                self._watched.add(one)
                places += [(one, number) for number in range(self._offsets.partitions(one))]
            else:
                it = LibraryPartition(*one) if isinstance(one, tuple) else one
                if it.offset >= 0:
                    starts.append(it)
                else:
                    places.append((it.topic, it.partition))
        starts += self._begin(places)
        self._is_subscribed = False
        self.on_left(list(self.owned))
        self._rouse(self.owned)
        self._client.assign(starts)
        self.owned = _begun(starts)

    def unassign(self) -> None:
        """Leave the group, or let go of what was taken."""
        self._watched.clear()
        self._rouse(self.owned)
        self._client.unsubscribe()
        self._client.unassign()
        self.on_left(list(self.owned))
        self.owned.clear()

    def watch(self) -> None:
        """Take the new partitions of topics that were taken as a whole, from their beginning."""
        for topic in self._watched:
            try:
                count = self._offsets.partitions(topic)
                new = [(topic, at) for at in range(count) if (topic, at) not in self.owned]
                starts = self._begin(new, are_new=True)
            except KafkaException as problem:
                _log.warning("%s cannot be looked at now: %s", topic, problem)
                continue
            if starts:
                self._client.incremental_assign(starts)
                self.owned |= _begun(starts)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from another offset; inside a listener, begin there."""
        if self.is_listening and (topic, partition) in self._starting:
            self._starting[topic, partition].offset = offset
            return
        place = LibraryPartition(topic, partition, offset)
        retry(
            lambda: self._offsets.insist(lambda: self._client.seek(place)),
            _unready_pause_s,
            timeout_s=self._offsets.timeout_s,
        )
        if self._consumed is not None:
            self._consumed.move((topic, partition), offset)
        self.on_left([(topic, partition)])

    def begin_again(self, topic: str, partition: int, offset: int) -> None:
        """Read a partition from another offset after the library has given up on its own."""
        self.on_left([(topic, partition)])
        if self._is_cooperative or not self._is_subscribed:
            self._client.incremental_unassign([LibraryPartition(topic, partition)])
            self._client.incremental_assign([LibraryPartition(topic, partition, offset)])
            return
        # With the older assignors only the whole assignment can be changed.
        begin = {**self.owned, (topic, partition): offset}
        others = [LibraryPartition(*place) for place in self.owned if place != (topic, partition)]
        for it in self._client.position(others):
            if it.offset >= 0:
                begin[it.topic, it.partition] = it.offset
        self._client.assign([LibraryPartition(*place, at) for place, at in begin.items()])

    def pause(self, partitions: list[Any]) -> None:
        """Read nothing from these; inside a listener, from when they are begun."""
        if self.is_listening:
            self._paused += partitions
        else:
            self._rest(partitions)

    def resume(self, partitions: list[Any]) -> None:
        """Read from these again."""
        self._resting.difference_update((it.topic, it.partition) for it in partitions)
        self._client.resume(partitions)

    @contextmanager
    def _keep_failure(self) -> Iterator[None]:
        # Raised through the library, an error would take the records along that it has in hand.
        try:
            yield
        except Exception as problem:
            self.failure = problem

    def _begin(self, places: list[TopicPartition], are_new: bool = False) -> list[Any]:
        """Where to begin in partitions taken without a group's help."""
        if not places:
            return []
        if self._beginnings is not None:
            starts, new = self._beginnings.find(places)
            self._write_down(new)
            return starts
        if are_new:
            offsets = dict.fromkeys(places, OFFSET_BEGINNING)
        elif self._start is None:
            raise NoStart(
                "nothing says where to begin: there is no group, and auto.offset.reset is none",
                'start="earliest" or start="latest"',
            )
        else:
            offsets = self._offsets.at(places, self._start, time.time_ns() // 1_000_000)
        return [LibraryPartition(*place, offset) for place, offset in offsets.items()]

    def _assigned(self, partitions: list[Any], listener: OnAssign | None) -> None:
        assert self._beginnings is not None
        assign = self._client.incremental_assign if self._is_cooperative else self._client.assign
        if self.is_closing:
            # It comes too late: the group is being left, and its coordinator not asked any more.
            assign([])
            return
        try:
            places = [(it.topic, it.partition) for it in partitions]
            starts, new = self._beginnings.find(places)
        except BaseException as problem:
            # Left alone, the library would begin at a place of its own choice.
            assign([])
            if isinstance(problem, WhereToStart):
                self.refusal = problem
            raise
        self._write_down(new)
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
            self.owned = (self.owned if self._is_cooperative else {}) | _begun(starts)
        if self._paused:
            paused, self._paused = self._paused, []
            self._rest(paused)

    def _leave(self, partitions: list[Any], listener: OnRevoke | None, *, is_lost: bool) -> None:
        places = [(it.topic, it.partition) for it in partitions]
        try:
            if listener is not None:
                self.is_listening = True
                listener(partitions)
        finally:
            self.is_listening = False
            self._rouse(places)
            for place in places:
                self.owned.pop(place, None)
            self.changes += 1
            if self._consumed is not None:
                done = self._consumed.take(places)
                if not is_lost:
                    self._commit_last(done)
            self.on_left(places)

    def _rest(self, partitions: list[Any]) -> None:
        self._resting.update((it.topic, it.partition) for it in partitions)
        self._client.pause(partitions)

    def _rouse(self, places: Iterable[TopicPartition]) -> None:
        """Let partitions go unpaused: the library would not read them if they came again."""
        resting = [LibraryPartition(*place) for place in places if place in self._resting]
        if resting:
            self.resume(resting)

    def commit_done(self) -> None:
        """Commit all that the caller has been given, and wait for it."""
        if self._consumed is not None:
            self._commit_last(self._consumed.take())

    def _commit_last(self, done: dict[TopicPartition, int]) -> None:
        try:
            self._commits.sync(done)
        except CommitFailed as problem:
            _log.warning("%s", problem)

    def _write_down(self, new: list[Any]) -> None:
        """Commit where the group begins; if that fails, the next member to get them does it."""
        if not new:
            return
        try:
            self._commits.sync(new)
        except CommitFailed as problem:
            _log.warning("%s", problem)


def _unready_pause_s(problem: Exception) -> float | None:
    # A partition that was only just assigned is not being read yet.
    is_unready = isinstance(problem, KafkaException) and problem.args[0].code() == KafkaError._STATE
    return UNREADY_SECONDS if is_unready else None


def _begun(starts: Iterable[Any]) -> dict[TopicPartition, int]:
    return {(it.topic, it.partition): it.offset for it in starts}

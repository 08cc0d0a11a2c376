"""Commits of a consumer: synchronous, asynchronous, and automatic."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.consumer.offsets import OffsetReader, PartitionOffsets, to_partitions
from headrace.client.errors import CommitFailed
from headrace.client.interceptors import Chain
from headrace.client.message import ConsumedRecord
from headrace.protocol.partitions import TopicPartition

OnCommit = Callable[[CommitFailed | None, list[Any]], object]

_log = logging.getLogger("headrace.client")

_FENCED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class Commits:
    """Sends commits with the group's marks, and calls each callback with its own answer."""

    def __init__(self, chain: Chain) -> None:
        self._client: Any = None
        self._offsets: OffsetReader | None = None
        self._marks: Mapping[str, str] = {}
        self._chain = chain
        self._is_leaving = False
        # Why the coordinator cannot be reached, once the consumer leaves.
        self._gone: Any = None
        # First offsets of large messages that are incomplete: nothing after them is committed.
        self.floors: Callable[[], Mapping[TopicPartition, int]] = dict
        self._waiting: deque[tuple[list[tuple[str, int, int]], OnCommit | None]] = deque()

    def connect(self, client: Any, offsets: OffsetReader, marks: Mapping[str, str]) -> None:
        """Use this client, which is created after this object, since it calls `answered`."""
        self._client = client
        self._offsets = offsets
        self._marks = marks

    def leave(self, partition: TopicPartition, timeout_s: float) -> None:
        """From now on, give up early, and at once if the coordinator is gone."""
        assert self._offsets is not None
        self._is_leaving = True
        self._offsets.timeout_s = min(self._offsets.timeout_s, timeout_s)
        try:
            self._offsets.committed([partition])
        except KafkaException as problem:
            self._gone = problem.args[0]

    def sync(self, offsets: PartitionOffsets) -> None:
        """Commit and wait; CommitFailed if the refusal is lasting."""
        asked = self._asked(offsets)
        if not asked:
            return
        reader = self._offsets
        assert reader is not None
        if self._gone is not None:
            raise _failed(self._gone, asked)
        is_first = True

        def commit() -> list[Any]:
            nonlocal is_first
            if not is_first and not self._is_leaving:
                # The library waits long to commit to a coordinator that is gone, but not to fetch.
                reader.committed([(asked[0].topic, asked[0].partition)])
            is_first = False
            done: list[Any] = self._client.commit(offsets=asked, asynchronous=False)
            for partition in done:
                if partition.error is not None:
                    raise KafkaException(partition.error)
            return done

        try:
            done = reader.insist(commit)
        except KafkaException as refusal:
            raise _failed(refusal.args[0], asked) from None
        self._chain.tell("on_commit", done)

    def later(self, offsets: PartitionOffsets, callback: OnCommit | None = None) -> None:
        """Commit without waiting; the callback is called from a later poll."""
        asked = self._asked(offsets)
        if not asked:
            return
        self._waiting.append((_key(asked), callback))
        try:
            self._client.commit(offsets=asked, asynchronous=True)
        except BaseException:
            self._waiting.pop()
            raise

    def answered(self, error: Any, partitions: list[Any]) -> None:
        """Called by the library from within a poll, once for each asynchronous commit."""
        callback = self._take(_key(partitions))
        refused = [it.error for it in partitions if it.error is not None]
        error = error or (refused[0] if refused else None)
        failure = None if error is None else _failed(error, partitions)
        if failure is None:
            self._chain.tell("on_commit", partitions)
        if callback is not None:
            try:
                callback(failure, partitions)
            except Exception:
                _log.exception("the callback of a commit failed")
        elif failure is not None:
            _log.warning("%s", failure)

    def _asked(self, offsets: PartitionOffsets) -> list[Any]:
        asked = to_partitions(offsets, self._marks)
        floors = self.floors()
        for it in asked if floors else ():
            it.offset = min(it.offset, floors.get((it.topic, it.partition), it.offset))
        return asked

    def _take(self, key: list[tuple[str, int, int]]) -> OnCommit | None:
        # Answers mostly come in order; that of a retried commit may come late.
        for at, (asked, callback) in enumerate(self._waiting):
            if asked == key:
                del self._waiting[at]
                return callback
        return None


class Consumed:
    """The offsets that the caller has processed, by what earlier polls have returned."""

    def __init__(self) -> None:
        self._done: dict[TopicPartition, int] = {}
        self._last: Sequence[ConsumedRecord] = []

    def returned(self, records: Sequence[ConsumedRecord]) -> None:
        """These are returned now; they count as done at the next poll."""
        self._last = records

    def advance(self) -> None:
        """The caller polls again, so what it was given last is done."""
        done = self._done
        for record in self._last:
            done[record.topic(), record.partition()] = record.offset() + 1
        self._last = []

    def take(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What is done and not taken yet: all of it, or in these partitions."""
        if partitions is None:
            taken, self._done = self._done, {}
            return taken
        return {it: self._done.pop(it) for it in partitions if it in self._done}

    def restore(self, partitions: Iterable[Any]) -> None:
        """What was taken was not committed after all."""
        for it in partitions:
            self._done.setdefault((it.topic, it.partition), it.offset)

    def move(self, partition: TopicPartition, offset: int) -> None:
        """The caller continues from another offset."""
        self.advance()
        self._done[partition] = offset


def _key(partitions: Iterable[Any]) -> list[tuple[str, int, int]]:
    return sorted((it.topic, it.partition, it.offset) for it in partitions)


def _failed(error: Any, partitions: Iterable[LibraryPartition]) -> CommitFailed:
    names = ", ".join(f"{it.topic}/{it.partition}" for it in partitions)
    hint = ""
    if error.code() in _FENCED:
        hint = "another member owns the partitions now and repeats what was not committed"
    return CommitFailed(f"offsets of {names} were not committed: {error.str()}", hint, error)

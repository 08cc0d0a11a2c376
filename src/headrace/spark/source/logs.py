"""The partitions that a query reads, and the first, last and timed offsets of their logs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from headrace.client.wire.batch_reader import GONE_SECONDS
from headrace.client.wire.cluster import PAUSE_SECONDS, ClusterClient
from headrace.client.wire.errors import GONE, refused
from headrace.client.wire.leaders import EARLIEST as EARLIEST_TIME
from headrace.client.wire.leaders import LATEST as LATEST_TIME
from headrace.client.wire.leaders import Leaders
from headrace.protocol.api.metadata import MetadataResponseTopic
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import OptionError, SourceUnreachable
from headrace.spark.source.offset_ranges import Offsets
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.positions import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    Position,
)

T = TypeVar("T")

NO_RECORD = -1
# The errors for a topic that does not exist, or cannot exist.
_NO_TOPIC = (*GONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
_MARKS = {EARLIEST_OFFSET: EARLIEST_TIME, LATEST_OFFSET: LATEST_TIME}


class Logs:
    """Asks a cluster, again until a timeout; then SourceUnreachable."""

    def __init__(
        self,
        cluster: ClusterClient,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster = cluster
        self._options = options
        self._clock = clock
        # Kept while they answer, because a stream asks many times a second.
        self._leaders: Leaders | None = None
        self._led: set[TopicPartition] = set()

    def initial_partitions(self) -> list[TopicPartition]:
        """The partitions of a new query; OptionError if a topic or partition does not exist."""
        found = self._matching()
        topics = self._options.topics
        missing = sorted(set(topics.names) - {topic for topic, _ in found})
        if missing:
            raise OptionError(f"there is no topic {', '.join(missing)}", "headrace topic list")
        absent = sorted(set(topics.assigned) - set(found))
        if absent:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in absent)
            raise OptionError(f"assign: there is no partition {names}")
        return found

    def current_partitions(self, expected: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """The partitions that exist now; the expected ones count as gone after GONE_SECONDS."""
        awaited = set(expected)
        deadline = self._clock() + GONE_SECONDS
        while True:
            found = self._matching()
            missing = awaited - set(found)
            if not missing:
                return found
            if self._clock() > deadline:
                # A topic that the user may no longer read is missing too: this raises then.
                self._named(topic for topic, _ in missing)
                return found
            time.sleep(PAUSE_SECONDS)

    def gone(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that no longer exist, whether the query still asks for them or not."""
        awaited = set(partitions)
        deadline = self._clock() + GONE_SECONDS
        while True:
            missing = awaited - set(_partitions_of(self._named(topic for topic, _ in awaited)))
            if not missing or self._clock() > deadline:
                return sorted(missing)
            time.sleep(PAUSE_SECONDS)

    def _matching(self) -> list[TopicPartition]:
        topics = self._options.topics
        if topics.pattern is None:
            found = _partitions_of(
                self._named(topics.names or (topic for topic, _ in topics.assigned))
            )
            return [tp for tp in found if not topics.assigned or tp in topics.assigned]
        fits = re.compile(topics.pattern).fullmatch
        there = self._insist(partial(self._topics, None))
        return _partitions_of(it for it in there if fits(it.name or "") and not it.is_internal)

    def _named(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        wanted = sorted(set(names))
        return self._insist(partial(self._topics, wanted)) if wanted else []

    def _topics(self, names: list[str] | None) -> list[MetadataResponseTopic]:
        """The topics that exist; KafkaError for one that is unavailable or may not be read."""
        there: list[MetadataResponseTopic] = []
        for topic in self.cluster.topics(names):
            if topic.error_code and topic.error_code not in _NO_TOPIC:
                refusal = refused(topic.error_code)
                raise KafkaError(refusal.code, f"topic {topic.name}: {refusal.message}")
            if not topic.error_code:
                there.append(topic)
        return there

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where logs begin."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST_TIME))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where logs end for this query; with read_committed, before the first open transaction."""
        return self._offsets(dict.fromkeys(partitions, LATEST_TIME))

    def resolve(self, position: Position, partitions: list[TopicPartition], option: str) -> Offsets:
        """The offset of each partition at a position; OptionError if one is not covered."""
        if position.word is not None:
            mark = {EARLIEST: EARLIEST_TIME, LATEST: LATEST_TIME}[position.word]
            return self._offsets(dict.fromkeys(partitions, mark))
        if position.offsets:
            _check_covers(position.offsets, partitions, option)
            marks = {
                tp: _MARKS[offset] for tp, offset in position.offsets.items() if offset in _MARKS
            }
            return {**position.offsets, **self._offsets(marks)}
        if position.time_ms is None:
            _check_covers(position.times_ms, partitions, option)
            times = dict(position.times_ms)
        else:
            times = dict.fromkeys(partitions, position.time_ms)
        return self._at(position, times, option)

    def _at(self, position: Position, times: Mapping[TopicPartition, int], option: str) -> Offsets:
        found = self._offsets(times)
        late = [tp for tp, offset in found.items() if offset == NO_RECORD]
        if late and option.startswith("starting") and position.late != LATEST:
            topic, partition = late[0]
            raise OptionError(
                f"{option}: {topic}/{partition} has no record at that time or later",
                "startingOffsetsByTimestampStrategy=latest begins at its end instead",
            )
        return {**found, **self.latest(late)}

    def _offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        found: Offsets = {}
        deadline = self._clock() + self._options.timeout_s
        while missing := {tp: at for tp, at in times.items() if tp not in found}:
            found |= self._insist(partial(self._ask, missing))
            if len(found) < len(times):
                self._leaders = None
                # Raises if the user may not read the topic.
                self._named(topic for topic, _ in times.keys() - found.keys())
                self._pause(deadline, f"no leader for {sorted(times.keys() - found.keys())}")
        return found

    def _ask(self, times: Mapping[TopicPartition, int]) -> Offsets:
        if self._leaders is None or not times.keys() <= self._led:
            self._leaders, self._led = Leaders(self.cluster, times), set(times)
        gone = self._leaders.gone & times.keys()
        if gone:
            raise SourceUnreachable(f"partitions were deleted: {sorted(gone)}")
        found: Offsets = {}
        for at in sorted(set(times.values())):
            asked = [tp for tp, wanted in times.items() if wanted == at]
            found |= self._leaders.offsets(asked, at, self._options.isolation)
        return found

    def _insist(self, ask: Callable[[], T]) -> T:
        """Ask again until the timeout while no broker answers."""
        deadline = self._clock() + self._options.timeout_s
        while True:
            try:
                return ask()
            except OSError as problem:
                self._leaders = None
                self._pause(deadline, f"{self._options.connection.bootstrap}: {problem}")
            except KafkaError as refusal:
                self._leaders = None
                if not refusal.code.retriable:
                    raise SourceUnreachable(refusal.message) from None
                self._pause(deadline, refusal.message)

    def _pause(self, deadline: float, problem: str) -> None:
        if self._clock() > deadline:
            raise SourceUnreachable(
                f"no answer in {self._options.timeout_s:g} s: {problem}",
                "is the address right, and does kafka.security.protocol fit the port?",
            )
        time.sleep(PAUSE_SECONDS)


def _partitions_of(topics: Iterable[MetadataResponseTopic]) -> list[TopicPartition]:
    return sorted((it.name or "", row.partition_index) for it in topics for row in it.partitions)


def _check_covers(
    given: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str
) -> None:
    missing = sorted(set(partitions) - given.keys())
    unknown = sorted(given.keys() - set(partitions))
    if missing or unknown:
        what = f"lacks {missing}" if missing else f"names {unknown}, which the query does not read"
        raise OptionError(f"{option} {what}", "name every partition that is read, and no other")

"""The partitions that a query reads, and where their logs begin, end and have a point in time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from headrace.client.wire.batch_reader import GONE, GONE_SECONDS
from headrace.client.wire.cluster import PAUSE_SECONDS, Cluster
from headrace.client.wire.errors import refused
from headrace.client.wire.leaders import EARLIEST as EARLIEST_TIME
from headrace.client.wire.leaders import LATEST as LATEST_TIME
from headrace.client.wire.leaders import Leaders
from headrace.protocol.api.metadata import MetadataResponseTopic
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.spark.errors import OptionError, SourceUnreachable
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.positions import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    Offsets,
    Position,
)

T = TypeVar("T")

NO_RECORD = -1
# What is said of a topic that is not there, or that cannot be.
_NO_TOPIC = (*GONE, ErrorCode.INVALID_TOPIC_EXCEPTION)
_MARKS = {EARLIEST_OFFSET: EARLIEST_TIME, LATEST_OFFSET: LATEST_TIME}


class Logs:
    """Asks a cluster; what it does not answer in time is a SourceUnreachable."""

    def __init__(
        self,
        cluster: Cluster,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        # Kept while they answer: a stream asks many times a second.
        self._leaders: Leaders | None = None
        self._led: set[TopicPartition] = set()

    def places_at_first(self) -> list[TopicPartition]:
        """The partitions for a query that begins; OptionError for what is not there."""
        found = self._look()
        topics = self._options.topics
        missing = sorted(set(topics.names) - {topic for topic, _ in found})
        if missing:
            raise OptionError(f"there is no topic {', '.join(missing)}", "headrace topic list")
        absent = sorted(set(topics.places) - set(found))
        if absent:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in absent)
            raise OptionError(f"assign: there is no partition {names}")
        return found

    def places(self, expected: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """The partitions that are there now; those expected are believed gone after a while."""
        awaited = set(expected)
        deadline = self._clock() + GONE_SECONDS
        while True:
            found = self._look()
            missing = awaited - set(found)
            if not missing:
                return found
            if self._clock() > deadline:
                # A topic that the user has no right to any more is in no list; it is not gone.
                self._named(topic for topic, _ in missing)
                return found
            time.sleep(PAUSE_SECONDS)

    def gone(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that are not there any more, whether the query still asks for them or not."""
        awaited = set(places)
        deadline = self._clock() + GONE_SECONDS
        while True:
            missing = awaited - set(_places(self._named(topic for topic, _ in awaited)))
            if not missing or self._clock() > deadline:
                return sorted(missing)
            time.sleep(PAUSE_SECONDS)

    def _look(self) -> list[TopicPartition]:
        topics = self._options.topics
        if topics.pattern is None:
            found = _places(self._named(topics.names or (topic for topic, _ in topics.places)))
            return [place for place in found if not topics.places or place in topics.places]
        fits = re.compile(topics.pattern).fullmatch
        there = self._insist(partial(self._topics, None))
        return _places(it for it in there if fits(it.name or "") and not it.is_internal)

    def _named(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        wanted = sorted(set(names))
        return self._insist(partial(self._topics, wanted)) if wanted else []

    def _topics(self, names: list[str] | None) -> list[MetadataResponseTopic]:
        """Topics that are there; a KafkaError for what cannot be said, or not be told the user."""
        there: list[MetadataResponseTopic] = []
        for topic in self._cluster.topics(names):
            if topic.error_code and topic.error_code not in _NO_TOPIC:
                refusal = refused(topic.error_code)
                raise KafkaError(refusal.code, f"topic {topic.name}: {refusal.message}")
            if not topic.error_code:
                there.append(topic)
        return there

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        """Where logs begin."""
        return self._offsets(dict.fromkeys(places, EARLIEST_TIME))

    def latest(self, places: Iterable[TopicPartition]) -> Offsets:
        """Where logs end for this query: before open transactions, if it reads committed ones."""
        return self._offsets(dict.fromkeys(places, LATEST_TIME))

    def resolve(self, position: Position, places: list[TopicPartition], option: str) -> Offsets:
        """The offset of each partition at a position; OptionError if it does not say all."""
        if position.word is not None:
            mark = {EARLIEST: EARLIEST_TIME, LATEST: LATEST_TIME}[position.word]
            return self._offsets(dict.fromkeys(places, mark))
        if position.offsets:
            _check_covers(position.offsets, places, option)
            marks = {
                place: _MARKS[offset]
                for place, offset in position.offsets.items()
                if offset in _MARKS
            }
            return {**position.offsets, **self._offsets(marks)}
        if position.time_ms is None:
            _check_covers(position.times_ms, places, option)
            times = dict(position.times_ms)
        else:
            times = dict.fromkeys(places, position.time_ms)
        return self._at(position, times, option)

    def _at(self, position: Position, times: Mapping[TopicPartition, int], option: str) -> Offsets:
        found = self._offsets(times)
        late = [place for place, offset in found.items() if offset == NO_RECORD]
        if late and option.startswith("starting") and position.late != LATEST:
            topic, partition = late[0]
            raise OptionError(
                f"{option}: {topic}/{partition} has no record as young as that",
                "startingOffsetsByTimestampStrategy=latest begins at its end instead",
            )
        return {**found, **self.latest(late)}

    def _offsets(self, times: Mapping[TopicPartition, int]) -> Offsets:
        found: Offsets = {}
        deadline = self._clock() + self._options.timeout_s
        while missing := {place: at for place, at in times.items() if place not in found}:
            found |= self._insist(partial(self._ask, missing))
            if len(found) < len(times):
                self._leaders = None
                # Says so if it is a right that is missing.
                self._named(topic for topic, _ in times.keys() - found.keys())
                self._pause(deadline, f"nobody leads {sorted(times.keys() - found.keys())}")
        return found

    def _ask(self, times: Mapping[TopicPartition, int]) -> Offsets:
        if self._leaders is None or not times.keys() <= self._led:
            self._leaders, self._led = Leaders(self._cluster, times), set(times)
        gone = self._leaders.gone & times.keys()
        if gone:
            raise SourceUnreachable(f"partitions are gone: {sorted(gone)}")
        found: Offsets = {}
        for at in sorted(set(times.values())):
            asked = [place for place, wanted in times.items() if wanted == at]
            found |= self._leaders.offsets(asked, at, self._options.isolation)
        return found

    def _insist(self, ask: Callable[[], T]) -> T:
        """Ask again while nobody answers."""
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
                f"no answer in {self._options.timeout_s:g} s: {problem} (hint: is the address "
                "right, and does kafka.security.protocol fit the port?)"
            )
        time.sleep(PAUSE_SECONDS)


def _places(topics: Iterable[MetadataResponseTopic]) -> list[TopicPartition]:
    return sorted((it.name or "", row.partition_index) for it in topics for row in it.partitions)


def _check_covers(
    given: Mapping[TopicPartition, int], places: list[TopicPartition], option: str
) -> None:
    missing = sorted(set(places) - given.keys())
    unknown = sorted(given.keys() - set(places))
    if missing or unknown:
        what = f"does not say {missing}" if missing else f"says {unknown}, which is not read"
        raise OptionError(f"{option} {what}", "name every partition that is read, and no other")

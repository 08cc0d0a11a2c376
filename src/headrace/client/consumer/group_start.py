"""Where a group begins in its partitions, so that nothing is lost or replayed by chance.

A consumer that starts at the end loses what was written to a new partition before it heard of it.
So the first commit of a group in a topic, made as soon as partitions are assigned, says when the
group began there and how many partitions there were; every later commit repeats it. A partition
without a commit is then known to be new (read from its beginning) or to be older than the group
(read from the time the group began).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.consumer.offsets import Offsets
from headrace.client.consumer.start import LATEST, Start
from headrace.client.errors import NoStart, UnknownGroupHistory
from headrace.protocol.partitions import TopicPartition

_MARK = re.compile(r"headrace began_ms=(\d+) partitions=(\d+)")

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class Mark:
    """When a group began in a topic, and how many partitions the topic had."""

    began_ms: int
    partitions: int

    def __str__(self) -> str:
        return f"headrace began_ms={self.began_ms} partitions={self.partitions}"


def find_mark(metadata: Iterable[str | None]) -> Mark | None:
    """The mark of a group in a topic, from the metadata of its commits; the oldest of several."""
    found = [_MARK.fullmatch(text) for text in metadata if text]
    marks = [Mark(int(match[1]), int(match[2])) for match in found if match]
    return min(marks, key=lambda mark: mark.began_ms, default=None)


class Begin(Enum):
    """How a partition is begun."""

    COMMITTED = auto()  # where the group was
    START = auto()  # where the consumer was told to: the group is new to the topic
    OLDEST = auto()  # at its oldest record: the partition is newer than the group
    SINCE = auto()  # when the group began: the partition was there, but was never reached
    UNCLEAR = auto()  # nobody wrote down which of the two is older


def decide(partition: int, committed: Mapping[int, int], mark: Mark | None) -> Begin:
    """How to begin a partition, given the group's commits in all partitions of the topic."""
    if partition in committed:
        return Begin.COMMITTED
    if not committed:
        return Begin.START
    if mark is None:
        return Begin.UNCLEAR
    return Begin.OLDEST if partition >= mark.partitions else Begin.SINCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts as a long history; -1 is no limit."""

    age_ms: int
    records: int


class GroupStart:
    """Finds the starting offsets of assigned partitions, and writes down the group's beginning."""

    def __init__(
        self,
        offsets: Offsets,
        group: str,
        *,
        start: Start | None,
        reset: Start | None,
        limits: Limits,
    ) -> None:
        # By topic: what every commit of the group carries.
        self.marks: dict[str, str] = {}
        self._offsets = offsets
        self._group = group
        self._start = start
        self._reset = reset
        self._limits = limits

    def find(self, places: Iterable[TopicPartition]) -> tuple[list[Any], list[Any]]:
        """TopicPartitions to begin with, and those of them to commit at once.

        UnknownGroupHistory or NoStart if the group has to say first where it wants to begin.
        """
        by_topic: dict[str, list[Any]] = {}
        for found in self._offsets.committed(places):
            by_topic.setdefault(found.topic, []).append(found)
        begun: list[Any] = []
        new: list[Any] = []
        for topic, committed in by_topic.items():
            if topic in self.marks and all(it.offset >= 0 for it in committed):
                begun += [LibraryPartition(topic, it.partition, it.offset) for it in committed]
                continue
            for number, offset, is_new in self._begin(topic, [it.partition for it in committed]):
                begun.append(LibraryPartition(topic, number, offset))
                if is_new:
                    new.append(LibraryPartition(topic, number, offset, self.marks[topic]))
        return begun, new

    def _begin(self, topic: str, partitions: list[int]) -> list[tuple[int, int, bool]]:
        """Number, offset and whether to write it down, for partitions not all of them known."""
        now_ms = time.time_ns() // 1_000_000
        known = self._offsets.partitions_apart(topic)
        count = max(known, *(number + 1 for number in partitions))
        found = self._offsets.committed((topic, number) for number in range(count))
        committed = {place.partition: place.offset for place in found if place.offset >= 0}
        mark = find_mark(place.metadata for place in found)
        ways = {number: decide(number, committed, mark) for number in partitions}
        if Begin.START in ways.values() and self._start is None:
            self._check_history(topic, count, now_ms)
        starts = {**committed}
        for way in Begin:
            numbers = [number for number in partitions if ways[number] is way]
            if numbers and way is not Begin.COMMITTED:
                places = [(topic, number) for number in numbers]
                offsets = self._find(way, places, mark, now_ms)
                starts.update((number, offset) for (_, number), offset in offsets.items())
        self.marks[topic] = str(mark or Mark(now_ms, count))
        # A partition that is newer than the group needs no note: its number says so for ever.
        noted = (Begin.COMMITTED, Begin.OLDEST)
        return [(number, starts[number], ways[number] not in noted) for number in partitions]

    def _find(
        self, way: Begin, places: list[TopicPartition], mark: Mark | None, now_ms: int
    ) -> dict[TopicPartition, int]:
        offsets = self._offsets
        if way is Begin.OLDEST:
            # Left to the library: it may have heard of the partition, but not yet who leads it.
            return dict.fromkeys(places, OFFSET_BEGINNING)
        start = self._start if way is Begin.START and self._start is not None else self._reset
        if start is None:
            raise NoStart(
                f"group {self._group!r} has no offset in {_names(places)}, and auto.offset.reset "
                "is none",
                'headrace group seek sets one, or say start="earliest" or start="latest"',
            )
        if way is Begin.START or start != LATEST:
            return offsets.at(places, start, now_ms)
        if way is Begin.SINCE:
            assert mark is not None
            return offsets.since(places, mark.began_ms)
        return self._unless_long(places, now_ms)

    def _unless_long(self, places: list[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
        """The oldest record of a partition with a short history, else its end."""
        oldest, ends = self._offsets.oldest(places), self._offsets.ends(places)
        old = self._older(oldest, ends, now_ms)
        for place in places:
            length = ends[place] - oldest[place]
            if place in old or 0 <= self._limits.records < length:
                _log.warning(
                    "%s/%s has %s records and no commit of group %s, which nothing tells to be "
                    "older or newer: it is begun at its end",
                    *place, length, self._group,
                )  # fmt: skip
                oldest[place] = ends[place]
        return oldest

    def _check_history(self, topic: str, count: int, now_ms: int) -> None:
        """Refuse a group that is new to a topic with a long history."""
        limits = self._limits
        places = [(topic, number) for number in range(count)]
        oldest, ends = self._offsets.oldest(places), self._offsets.ends(places)
        records = sum(ends[place] - oldest[place] for place in places)
        is_old = bool(self._older(oldest, ends, now_ms))
        if is_old or 0 <= limits.records < records:
            age = str(timedelta(milliseconds=limits.age_ms)) if is_old else None
            raise UnknownGroupHistory(self._group, topic, records, age)

    def _older(
        self, oldest: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now_ms: int
    ) -> set[TopicPartition]:
        """Those with records from before the limit."""
        filled = [place for place in oldest if ends[place] > oldest[place]]
        if self._limits.age_ms < 0 or not filled:
            return set()
        since = self._offsets.since(filled, now_ms - self._limits.age_ms)
        return {place for place in filled if since[place] > oldest[place]}


def _names(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}/{number}" for topic, number in places)

"""Where a group starts in its partitions, so that nothing is lost or replayed by accident.

A consumer that starts at the end loses what was written to a new partition before it noticed it,
and a partition that changes hands before its first commit would be started a second time. So the
first commit of a group in a topic, made as soon as partitions are assigned, carries a mark: when
the group began there, how many partitions there were, and where each ended. Every later commit
repeats it. A partition without a commit is then known to be newer than the group (read from its
beginning) or older (read from where it ended when the group began).

Members that start at the same time may each write a mark, and any of them will do: a member reads
the ends before the commits, and writes a mark only if it found no commit. So the ends of every mark
are from before the first commit of the group, and nothing written since then is skipped.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as LibraryPartition

from headrace.client.consumer.offsets import OffsetReader
from headrace.client.consumer.start import LATEST, Start
from headrace.client.errors import NoStart, UnknownGroupHistory
from headrace.protocol.partitions import TopicPartition

_MARK = re.compile(r"headrace began_ms=(\d+) partitions=(\d+)(?: ends=([\d,]*))?")
# A mark is stored with every commit, and brokers take 4,096 characters. One that is longer goes
# without the ends; partitions are then started by time.
MARK_CHARS_MAX = 1_000
_UNKNOWN = -1

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class GroupMark:
    """When a group began in a topic, how many partitions it had then, and where each ended."""

    began_ms: int
    partitions: int
    # By partition; an end that is not known is -1, and none is known if this is empty.
    ends: tuple[int, ...] = ()

    def end(self, partition: int) -> int | None:
        """Where a partition ended, if that is known."""
        end = self.ends[partition] if partition < len(self.ends) else _UNKNOWN
        return None if end == _UNKNOWN else end

    def __str__(self) -> str:
        text = f"headrace began_ms={self.began_ms} partitions={self.partitions}"
        ends = ",".join("" if end == _UNKNOWN else str(end) for end in self.ends)
        whole = f"{text} ends={ends}"
        return whole if ends and len(whole) <= MARK_CHARS_MAX else text


def find_mark(metadata: Iterable[str | None]) -> GroupMark | None:
    """The mark of a group in a topic, from the metadata of its commits; the oldest of several."""
    found = [_MARK.fullmatch(text) for text in set(metadata) if text]
    marks = [GroupMark(int(it[1]), int(it[2]), _ends(it[3])) for it in found if it]
    return min(marks, key=lambda mark: mark.began_ms, default=None)


def _ends(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    return tuple(int(end) if end else _UNKNOWN for end in text.split(","))


class StartRule(Enum):
    """How a partition is started."""

    COMMITTED = auto()  # where the group was
    START = auto()  # at the configured start: the group is new to the topic
    OLDEST = auto()  # at its oldest record: the partition is newer than the group
    SINCE = auto()  # where it ended when the group began: it existed, but was never read
    UNCLEAR = auto()  # no mark shows which of the two is older


def decide(partition: int, committed: Mapping[int, int], mark: GroupMark | None) -> StartRule:
    """How to start a partition, given the group's commits in all partitions of the topic."""
    if partition in committed:
        return StartRule.COMMITTED
    if not committed:
        return StartRule.START
    if mark is None:
        return StartRule.UNCLEAR
    return StartRule.OLDEST if partition >= mark.partitions else StartRule.SINCE


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """What counts as a long history; -1 is no limit."""

    age_ms: int
    records: int


class GroupStart:
    """Finds the starting offsets of assigned partitions, and marks when the group began."""

    def __init__(
        self,
        offsets: OffsetReader,
        group: str,
        *,
        start: Start | None,
        reset: Start | None,
        limits: HistoryLimits,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        # By topic: what every commit of the group carries.
        self.marks: dict[str, str] = {}
        self._offsets = offsets
        self._group = group
        self._is_start_given = start is not None
        # Where to start in a partition that the group has never read.
        self._start = start if start is not None else reset
        self._limits = limits
        self._now_ms = now_ms
        # By topic: when this member began, should the group turn out to be new there.
        self._own_marks: dict[str, GroupMark] = {}

    def find(self, partitions: Iterable[TopicPartition]) -> tuple[list[Any], list[Any]]:
        """TopicPartitions with their starting offsets, and those of them to commit at once.

        UnknownGroupHistory or NoStart if the group must be given a start first.
        """
        by_topic: dict[str, list[Any]] = {}
        for found in self._offsets.committed(partitions):
            by_topic.setdefault(found.topic, []).append(found)
        begun: list[Any] = []
        new: list[Any] = []
        for topic, committed in by_topic.items():
            are_all_committed = all(it.offset >= 0 for it in committed)
            if topic in self.marks and are_all_committed:
                self.began([topic])
                begun += [LibraryPartition(topic, it.partition, it.offset) for it in committed]
                continue
            numbers = [it.partition for it in committed]
            for number, offset, is_new in self._begin(topic, numbers, are_all_committed):
                begun.append(LibraryPartition(topic, number, offset))
                if is_new:
                    new.append(LibraryPartition(topic, number, offset, self.marks[topic]))
        return begun, new

    def began(self, topics: Iterable[str]) -> None:
        """The group has commits in these topics, so when this member began counts no more.

        Should the commits be deleted one day, the group is new there once again.
        """
        for topic in topics:
            self._own_marks.pop(topic, None)

    def _begin(
        self, topic: str, numbers: list[int], are_all_committed: bool
    ) -> list[tuple[int, int, bool]]:
        """Number, offset and whether to commit it, of partitions that are not all committed."""
        known = self._offsets.partitions_apart(topic)
        count = max(known, *(number + 1 for number in numbers))
        own = self._own_mark(topic, count, numbers, needs_ends=not are_all_committed)
        found = self._offsets.committed((topic, number) for number in range(count))
        committed = {it.partition: it.offset for it in found if it.offset >= 0}
        if committed:
            self.began([topic])
        mark = find_mark(it.metadata for it in found)
        rules = {number: decide(number, committed, mark) for number in numbers}
        if StartRule.START in rules.values() and not self._is_start_given:
            self._check_history(topic, count, own.began_ms)
        starts = {**committed}
        for rule in StartRule:
            same_rule = [number for number in numbers if rules[number] is rule]
            if same_rule and rule is not StartRule.COMMITTED:
                offsets = self._find(
                    rule, topic, same_rule, own if rule is StartRule.START else mark
                )
                starts.update((number, offset) for (_, number), offset in offsets.items())
        self.marks[topic] = str(mark or own)
        # A partition that is newer than the group needs no commit: its number shows it.
        noted = (StartRule.COMMITTED, StartRule.OLDEST)
        return [(number, starts[number], rules[number] not in noted) for number in numbers]

    def _own_mark(
        self, topic: str, count: int, numbers: list[int], *, needs_ends: bool
    ) -> GroupMark:
        """When this member began in a topic, kept in case its first commit fails."""
        if not needs_ends:
            return GroupMark(self._now_ms(), count)
        own = self._own_marks.get(topic)
        if own is None:
            began_ms = self._now_ms()
            ends: dict[TopicPartition, int] = {}
            if self._start == LATEST:
                mine = [(topic, number) for number in numbers]
                others = [(topic, number) for number in range(count) if number not in numbers]
                ends = self._offsets.ends(mine) | self._offsets.ends_of_available(others)
            row = tuple(ends.get((topic, number), _UNKNOWN) for number in range(count))
            own = self._own_marks[topic] = GroupMark(began_ms, count, row if ends else ())
        return own

    def _find(
        self, rule: StartRule, topic: str, numbers: list[int], mark: GroupMark | None
    ) -> dict[TopicPartition, int]:
        offsets = self._offsets
        partitions = [(topic, number) for number in numbers]
        if rule is StartRule.OLDEST:
            # Left to the library, which may not know the leader of a new partition yet.
            return dict.fromkeys(partitions, OFFSET_BEGINNING)
        start = self._start
        if start is None:
            raise NoStart(
                f"group {self._group!r} has no offset in {_names(partitions)}, and "
                "auto.offset.reset is none",
                'write start="earliest" or start="latest", or use headrace group seek',
            )
        if start == LATEST:
            return self._unless_long(partitions) if mark is None else self._since(partitions, mark)
        return offsets.at(partitions, start, self._now_ms() if mark is None else mark.began_ms)

    def _since(
        self, partitions: list[TopicPartition], mark: GroupMark
    ) -> dict[TopicPartition, int]:
        """Where partitions ended at a mark; a newer one starts with its oldest record."""
        starts: dict[TopicPartition, int] = {}
        by_time = []
        for partition in partitions:
            end = mark.end(partition[1])
            if partition[1] >= mark.partitions:
                starts[partition] = OFFSET_BEGINNING
            elif end is not None:
                starts[partition] = end
            else:
                by_time.append(partition)
        return starts | self._offsets.since(by_time, mark.began_ms)

    def _unless_long(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The oldest offset of partitions with a short history, the end of others."""
        now_ms = self._now_ms()
        oldest, ends = self._offsets.oldest(partitions), self._offsets.ends(partitions)
        old = self._older(oldest, ends, now_ms)
        for partition in partitions:
            length = ends[partition] - oldest[partition]
            if partition in old or 0 <= self._limits.records < length:
                _log.warning(
                    "%s/%s has %s records and no commit of group %s, and no mark shows which is "
                    "older: it is read from its end",
                    *partition, length, self._group,
                )  # fmt: skip
                oldest[partition] = ends[partition]
        return oldest

    def _check_history(self, topic: str, count: int, now_ms: int) -> None:
        """UnknownGroupHistory for a group that is new to a topic with a long history."""
        limits = self._limits
        partitions = [(topic, number) for number in range(count)]
        oldest, ends = self._offsets.oldest(partitions), self._offsets.ends(partitions)
        records = sum(ends[partition] - oldest[partition] for partition in partitions)
        is_old = bool(self._older(oldest, ends, now_ms))
        if is_old or 0 <= limits.records < records:
            age = str(timedelta(milliseconds=limits.age_ms)) if is_old else None
            raise UnknownGroupHistory(self._group, topic, records, age)

    def _older(
        self, oldest: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now_ms: int
    ) -> set[TopicPartition]:
        """The partitions with records that are older than the limit."""
        filled = [partition for partition in oldest if ends[partition] > oldest[partition]]
        if self._limits.age_ms < 0 or not filled:
            return set()
        since = self._offsets.since(filled, now_ms - self._limits.age_ms)
        return {partition for partition in filled if since[partition] > oldest[partition]}


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}/{number}" for topic, number in partitions)

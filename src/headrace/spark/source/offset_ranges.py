"""Ranges of offsets: how much a trigger reads, and how that is divided among tasks; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headrace.protocol.partitions import TopicPartition

Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Offsets of a partition, from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class ReadPlan(NamedTuple):
    """The ranges that a batch reads, and descriptions of the records that it lost."""

    ranges: list[OffsetRange]
    losses: list[str]


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the checkpoint format of the official connector, always in the same order."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return found


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets from a checkpoint."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
    }


def records_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets are between two positions; a partition that went backwards counts as 0."""
    return sum(max(0, offset - start.get(tp, 0)) for tp, offset in end.items())


def admit(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], records_max: int
) -> Offsets:
    """Where a trigger ends that reads about `records_max` records, each partition by its share."""
    waiting = {tp: latest[tp] - start.get(tp, 0) for tp in latest}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= records_max:
        return dict(latest)
    # A partition with nothing new, or one that was recreated, goes to its end: `plan` handles it.
    end = dict(latest)
    backlog = {tp: size for tp, size in waiting.items() if size > 0}
    shares = {tp: divmod(records_max * size, total) for tp, size in backlog.items()}
    left = records_max - sum(share for share, _ in shares.values())
    # The partitions that lost most to rounding get the remainder, so that the last few records
    # need no trigger of their own. Every partition with a backlog gets at least one record.
    for tp in sorted(shares, key=lambda tp: -shares[tp][1]):
        share = max(1, shares[tp][0] + (left > 0))
        left -= 1
        end[tp] = latest[tp] - backlog[tp] + share
    return end


def plan(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
) -> ReadPlan:
    """The ranges from one position to another.

    `earliest` has the first offset of each partition of `partitions_without_start`.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    for topic, partition in sorted(start.keys() - end.keys()):
        losses.append(f"{topic}/{partition} is gone")
    for (topic, partition), stop in sorted(end.items()):
        begin = start.get((topic, partition))
        if begin is None:
            begin = earliest.get((topic, partition), 0)
            if begin > 0:
                losses.append(
                    f"the new partition {topic}/{partition} begins at {begin}: earlier records "
                    "were deleted unread"
                )
        elif stop < begin:
            losses.append(
                f"{topic}/{partition} went back from {begin} to {stop}: the topic was recreated, "
                "or its log was truncated"
            )
            begin = earliest.get((topic, partition), 0)
        if stop > begin:
            ranges.append(OffsetRange(topic, partition, begin, stop))
    return ReadPlan(ranges, losses)


def partitions_without_start(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """The partitions that are new or went backwards, so that `plan` needs their first offset."""
    return {tp for tp, stop in end.items() if stop < start.get(tp, stop + 1)}


def split(
    ranges: Iterable[OffsetRange], records_per_task_max: int, tasks_min: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into tasks: none above the maximum, and at least `tasks_min`, sized alike."""
    found = [it for it in ranges if it.size > 0]
    pieces = [math.ceil(it.size / records_per_task_max) for it in found]
    if tasks_min is not None and sum(pieces) < tasks_min:
        total = sum(it.size for it in found)
        pieces = [
            max(count, math.ceil(tasks_min * it.size / total))
            for it, count in zip(found, pieces, strict=True)
        ]
    tasks: list[OffsetRange] = []
    for whole, count in zip(found, pieces, strict=True):
        count = min(count, whole.size)
        cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
        tasks += [whole._replace(start=begin, end=end) for begin, end in pairwise(cuts)]
    return tasks

"""Ranges of offsets: how much a trigger takes, and how it is shared out among tasks; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headrace.protocol.partitions import TopicPartition
from headrace.spark.source.positions import Offsets


class Range(NamedTuple):
    """Offsets of a partition, from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Plan(NamedTuple):
    """What a batch reads, and what it should have read but cannot, in words."""

    ranges: list[Range]
    losses: list[str]


def behind(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between two places; partitions that went backwards count nothing."""
    return sum(max(0, offset - start.get(place, 0)) for place, offset in end.items())


def admit(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], records_max: int
) -> Offsets:
    """Where a trigger ends that takes about `records_max` records, each partition by its share."""
    waiting = {place: latest[place] - start.get(place, 0) for place in latest}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= records_max:
        return dict(latest)
    # Where nothing waits, or a partition was made anew, it is the end: the plan finds out.
    end = dict(latest)
    behind_by = {place: size for place, size in waiting.items() if size > 0}
    shares = {place: divmod(records_max * size, total) for place, size in behind_by.items()}
    left = records_max - sum(share for share, _ in shares.values())
    # What rounding leaves over goes to who lost most by it, so that no trigger is needed for the
    # last few records; and who waits gets on, however little of the whole it has.
    for place in sorted(shares, key=lambda place: -shares[place][1]):
        share = max(1, shares[place][0] + (left > 0))
        left -= 1
        end[place] = latest[place] - behind_by[place] + share
    return end


def plan(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
) -> Plan:
    """The ranges from one place to another.

    `earliest` says where partitions begin that are not in `start`, or that went backwards.
    """
    ranges: list[Range] = []
    losses: list[str] = []
    for topic, partition in sorted(start.keys() - end.keys()):
        losses.append(f"{topic}/{partition} is gone")
    for (topic, partition), stop in sorted(end.items()):
        place = (topic, partition)
        begin = start.get(place)
        if begin is None:
            begin = earliest.get(place, 0)
            if begin > 0:
                losses.append(
                    f"the new partition {topic}/{partition} begins at {begin}: what was before it "
                    "was deleted unread"
                )
        elif stop < begin:
            losses.append(
                f"{topic}/{partition} went back from {begin} to {stop}: it was deleted and made "
                "anew, or lost its end"
            )
            begin = earliest.get(place, 0)
        if stop > begin:
            ranges.append(Range(topic, partition, begin, stop))
    return Plan(ranges, losses)


def unknown_beginnings(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    """The partitions whose beginning a plan needs to know."""
    return {place for place, stop in end.items() if stop < start.get(place, stop + 1)}


def split(
    ranges: Iterable[Range], records_per_task_max: int, tasks_min: int | None = None
) -> list[Range]:
    """Cut ranges into tasks: none too large, and at least `tasks_min` of them, by their sizes."""
    found = [it for it in ranges if it.size > 0]
    pieces = [math.ceil(it.size / records_per_task_max) for it in found]
    if tasks_min is not None and sum(pieces) < tasks_min:
        total = sum(it.size for it in found)
        pieces = [
            max(count, math.ceil(tasks_min * it.size / total))
            for it, count in zip(found, pieces, strict=True)
        ]
    tasks: list[Range] = []
    for whole, count in zip(found, pieces, strict=True):
        count = min(count, whole.size)
        cuts = [whole.start + whole.size * number // count for number in range(count + 1)]
        tasks += [whole._replace(start=begin, end=end) for begin, end in pairwise(cuts)]
    return tasks

"""A snapshot: all that is known of a group that is behind, gathered before anybody judges; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from headrace.lag.places import GroupLag, PartitionLag
from headrace.protocol.partitions import TopicPartition

# What came in lately is compared with what came in before that.
RECENT_SECONDS = 300
EARLIER_SECONDS = 3600
# In these states some members have no partitions, and nobody is sure to keep theirs.
UNSETTLED = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


class Flow(NamedTuple):
    """Records of a partition while it was watched."""

    written: int
    read: int


class Inflow(NamedTuple):
    """Records a second that came in lately, and before that; None if that is not long enough."""

    recent_per_s: float
    earlier_per_s: float | None


class Sample(NamedTuple):
    """Records that the group has still to read in one partition, by key."""

    key: TopicPartition
    looked_at: int
    distinct: int
    top: tuple[tuple[str, int], ...]
    """The most frequent keys and how often each was there."""
    resent: int = 0
    """Records that a failed handler has sent again."""


class Failures(NamedTuple):
    """What has failed of a topic: dead letters of the last hour, messages waiting for a retry."""

    topic: str
    dead_letters: int = 0
    waiting: int = 0
    error: str = ""

    @property
    def total(self) -> int:
        return self.dead_letters + self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A group as it is, what it did while it was watched, and what lies in its topics."""

    group: GroupLag
    watched_s: float = 0.0
    looks: int = 1
    flows: Mapping[TopicPartition, Flow] = field(default_factory=dict)
    rebalances: int = 0
    """How often members or their partitions were others than at the look before."""
    unsettled: int = 0
    """How many looks found it in the middle of a rebalance."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    inflows: Mapping[TopicPartition, Inflow] = field(default_factory=dict)
    sample: Sample | None = None
    failures: tuple[Failures, ...] = ()

    @property
    def lagging(self) -> list[PartitionLag]:
        """The partitions that are behind, the worst first."""
        rows = [row for row in self.group.partitions if row.lag]
        return sorted(rows, key=lambda row: (row.lag or 0, row.behind_ms or 0), reverse=True)

    def arrived(self, topic: str) -> float:
        """How many records of a topic came in within about an hour."""
        inflows = [inflow for key, inflow in self.inflows.items() if key[0] == topic]
        recent = sum(inflow.recent_per_s * RECENT_SECONDS for inflow in inflows)
        return recent + sum((inflow.earlier_per_s or 0.0) * EARLIER_SECONDS for inflow in inflows)

    def per_s(self, count: int) -> float:
        """So many a second of the time watched."""
        return count / self.watched_s if self.watched_s else 0.0


def compare(looks: Sequence[GroupLag]) -> Snapshot:
    """What a series of looks says by itself."""
    first, last = looks[0], looks[-1]
    before = {row.key: row for row in first.partitions}
    flows = {}
    for row in last.partitions:
        old = before.get(row.key)
        if old is not None and None not in (old.end, row.end, old.committed, row.committed):
            flows[row.key] = Flow(
                max(0, _number(row.end) - _number(old.end)),
                max(0, _number(row.committed) - _number(old.committed)),
            )
    shares = [{(member.id, member.owned) for member in look.members or ()} for look in looks]
    # In the middle of a rebalance nobody knows it.
    assignor = next((look.assignor for look in reversed(looks) if look.assignor), None)
    return Snapshot(
        group=replace(last, assignor=assignor),
        watched_s=(last.at_ms - first.at_ms) / 1000,
        looks=len(looks),
        flows=flows,
        rebalances=sum(old != new for old, new in pairwise(shares)),
        unsettled=sum(look.state in UNSETTLED for look in looks),
    )


def _number(value: int | None) -> int:
    return 0 if value is None else value

"""A snapshot of a group that is behind: the facts that causes are found in; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from headrace.lag.group_lag import GroupLag, PartitionLag
from headrace.protocol.partitions import TopicPartition

# The recent inflow is compared with the hour before it.
RECENT_SECONDS = 300
EARLIER_SECONDS = 3600
# In these states a rebalance is under way.
UNSETTLED = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


class Flow(NamedTuple):
    """Records written to and read from a partition while it was watched."""

    written: int
    read: int


class Inflow(NamedTuple):
    """Records per second, recently and earlier; None if the topic is too young for that."""

    recent_per_s: float
    earlier_per_s: float | None


class Sample(NamedTuple):
    """Records of one partition that the group has still to read, by key."""

    key: TopicPartition
    sampled: int
    distinct: int
    top: tuple[tuple[str, int], ...]
    """The most frequent keys, with their counts."""
    resent: int = 0
    """Records that a failed handler has sent again."""


class Failures(NamedTuple):
    """Failures of a topic: dead letters of the last hour, and messages waiting for a retry."""

    topic: str
    dead_letters: int = 0
    waiting: int = 0
    error: str = ""

    @property
    def total(self) -> int:
        return self.dead_letters + self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A group, what it did while it was watched, and what its topics contain."""

    group: GroupLag
    watched_s: float = 0.0
    measurements: int = 1
    flows: Mapping[TopicPartition, Flow] = field(default_factory=dict)
    rebalances: int = 0
    """How often members or their partitions differed from the measurement before."""
    unsettled: int = 0
    """How many measurements found a rebalance under way."""
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
        """How many records of a topic came in during about the last hour."""
        inflows = [inflow for key, inflow in self.inflows.items() if key[0] == topic]
        recent = sum(inflow.recent_per_s * RECENT_SECONDS for inflow in inflows)
        return recent + sum((inflow.earlier_per_s or 0.0) * EARLIER_SECONDS for inflow in inflows)

    def per_s(self, count: int) -> float:
        """A count as a rate over the time watched."""
        return count / self.watched_s if self.watched_s else 0.0


def compare(measured: Sequence[GroupLag]) -> Snapshot:
    """What a series of measurements of a group tells."""
    first, last = measured[0], measured[-1]
    before = {row.key: row for row in first.partitions}
    flows = {}
    for row in last.partitions:
        old = before.get(row.key)
        if old is not None and None not in (old.end, row.end, old.committed, row.committed):
            flows[row.key] = Flow(
                max(0, _number(row.end) - _number(old.end)),
                max(0, _number(row.committed) - _number(old.committed)),
            )
    shares = [{(member.id, member.owned) for member in one.members or ()} for one in measured]
    # Unknown while a rebalance is under way.
    assignor = next((one.assignor for one in reversed(measured) if one.assignor), None)
    return Snapshot(
        group=replace(last, assignor=assignor),
        watched_s=(last.at_ms - first.at_ms) / 1000,
        measurements=len(measured),
        flows=flows,
        rebalances=sum(old != new for old, new in pairwise(shares)),
        unsettled=sum(one.state in UNSETTLED for one in measured),
    )


def _number(value: int | None) -> int:
    return 0 if value is None else value

"""The lag of a group, by its offsets and the bounds of its partitions; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.client.admin.groups import EMPTY_STATES
from headrace.protocol.partitions import TopicPartition


class Bounds(NamedTuple):
    """The first offset, last stable offset and end of a partition.

    Records between `stable` and `end` belong to open transactions or come after them.
    """

    start: int
    stable: int
    end: int


class Standing(StrEnum):
    """Whether the lag of a partition is known, and if not, why."""

    OK = "ok"
    NO_COMMIT = "no commit"
    EXPIRED = "expired"
    BEYOND = "beyond the end"
    DELETED = "deleted"
    AWAY = "no leader"


class Verdict(NamedTuple):
    """The lag that follows from a committed offset and the bounds of its partition."""

    standing: Standing
    next_offset: int | None = None
    """The next offset that the group can read."""
    lag: int | None = None
    lost: int = 0
    """Records that were deleted before the group read them."""
    held: int = 0
    """Offsets held back by an open transaction."""


def judge(committed: int | None, bounds: Bounds | None) -> Verdict:
    """How far a group is behind; the committed offset must have been read before the bounds.

    A group with an offset after the last stable one reads uncommitted records, up to the end.
    """
    if bounds is None:
        return Verdict(Standing.DELETED)
    if committed is None:
        return Verdict(Standing.NO_COMMIT, held=bounds.end - bounds.stable)
    if committed > bounds.end:
        return Verdict(Standing.BEYOND)
    next_offset = max(committed, bounds.start)
    readable = bounds.stable if next_offset <= bounds.stable else bounds.end
    return Verdict(
        Standing.OK if next_offset == committed else Standing.EXPIRED,
        next_offset,
        readable - next_offset,
        next_offset - committed,
        bounds.end - readable,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of a group in one partition."""

    topic: str
    partition: int
    standing: Standing
    committed: int | None = None
    start: int | None = None
    end: int | None = None
    """The offset after the last record that the group may read."""
    lag: int | None = None
    behind_ms: int | None = None
    """How long ago the next record was written; 0 when there is none."""
    lost: int = 0
    held: int = 0
    member: str | None = None

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of a group and what it reads."""

    id: str
    client: str = ""
    host: str = ""
    instance: str | None = None
    topics: frozenset[str] = frozenset()
    """Its subscription, if the protocol of the group contains it."""
    owned: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of a group at one time."""

    group: str
    type: str | None = None
    protocol: str = ""
    state: str | None = None
    assignor: str | None = None
    at_ms: int = 0
    members: tuple[MemberView, ...] | None = None
    """None if the members of this kind of group cannot be listed."""
    partitions: tuple[PartitionLag, ...] = ()

    @property
    def lag(self) -> int | None:
        """The records of all partitions whose lag is known; None if there is no such partition."""
        known = [row.lag for row in self.partitions if row.lag is not None]
        return sum(known) if known else None

    @property
    def behind_ms(self) -> int | None:
        """The longest time of all partitions."""
        return max(_known(row.behind_ms for row in self.partitions), default=None)

    @property
    def is_empty(self) -> bool:
        """Whether it certainly has no members."""
        return not self.members if self.members is not None else self.state in EMPTY_STATES

    @property
    def worst(self) -> PartitionLag | None:
        """The partition that is furthest behind."""
        lagging = [row for row in self.partitions if row.lag]
        return max(lagging, key=lambda row: (row.behind_ms or 0, row.lag or 0), default=None)


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]

"""Where a group stands in its partitions, and how far that is from the end; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.client.admin.groups import EMPTY_STATES
from headrace.protocol.partitions import TopicPartition


class Bounds(NamedTuple):
    """What a partition holds: from the first record to the last stable one, and to the end.

    What lies between `stable` and `end` belongs to open transactions or comes after them.
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
    """What follows from a committed offset and the bounds of its partition."""

    standing: Standing
    place: int | None = None
    """The next offset that the group can read."""
    lag: int | None = None
    lost: int = 0
    """Records that were deleted before the group read them."""
    held: int = 0
    """Offsets behind an open transaction, which nobody may read yet."""


def judge(committed: int | None, bounds: Bounds | None) -> Verdict:
    """How far a group is behind; the committed offset must have been read before the bounds.

    A group that has committed an offset after the last stable one reads uncommitted records, so
    for it the end is the end.
    """
    if bounds is None:
        return Verdict(Standing.DELETED)
    if committed is None:
        return Verdict(Standing.NO_COMMIT, held=bounds.end - bounds.stable)
    if committed > bounds.end:
        return Verdict(Standing.BEYOND)
    place = max(committed, bounds.start)
    readable = bounds.stable if place <= bounds.stable else bounds.end
    return Verdict(
        Standing.OK if place == committed else Standing.EXPIRED,
        place,
        readable - place,
        place - committed,
        bounds.end - readable,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition of a group, as measured."""

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
    """What it has subscribed to, where the group's protocol says so."""
    owned: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A group, as measured at one moment."""

    group: str
    type: str | None = None
    protocol: str = ""
    state: str | None = None
    assignor: str | None = None
    at_ms: int = 0
    members: tuple[MemberView, ...] | None = None
    """None if its kind of group cannot be asked for them."""
    partitions: tuple[PartitionLag, ...] = ()

    @property
    def lag(self) -> int | None:
        """Records in all partitions whose lag is known; None if none is."""
        known = [row.lag for row in self.partitions if row.lag is not None]
        return sum(known) if known else None

    @property
    def behind_ms(self) -> int | None:
        """The longest of all partitions."""
        return max(_known(row.behind_ms for row in self.partitions), default=None)

    @property
    def is_empty(self) -> bool:
        """Whether it surely has no members."""
        return not self.members if self.members is not None else self.state in EMPTY_STATES

    @property
    def worst(self) -> PartitionLag | None:
        """The partition that is longest behind."""
        lagging = [row for row in self.partitions if row.lag]
        return max(lagging, key=lambda row: (row.behind_ms or 0, row.lag or 0), default=None)


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]

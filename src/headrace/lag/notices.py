"""Notices: sent when the level of a group changes, or stays raised for long; pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.lag.group_lag import GroupLag, PartitionLag
from headrace.lag.levels import Level, Reading

# How many of the worst partitions a notice contains.
PARTITIONS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The level of a group, its former level, and the figures."""

    group: str
    level: Level
    was: Level
    reading: Reading
    at_ms: int
    state: str | None = None
    members: int | None = None
    partitions: tuple[PartitionLag, ...] = ()

    @classmethod
    def of(cls, group: GroupLag, level: Level, was: Level, reading: Reading, at_ms: int) -> Notice:
        """A notice with the partitions that are furthest behind."""
        lagging = [row for row in group.partitions if row.lag]
        lagging.sort(key=lambda row: (row.behind_ms or 0, row.lag or 0), reverse=True)
        return cls(
            group=group.group,
            level=level,
            was=was,
            reading=reading,
            at_ms=at_ms,
            state=group.state,
            members=None if group.members is None else len(group.members),
            partitions=tuple(lagging[:PARTITIONS_MAX]),
        )

    @property
    def text(self) -> str:
        """One sentence for people."""
        figures = f"{self.reading.records} records, {self.reading.behind_ms / 1000:.0f} s behind"
        if self.level is Level.OK:
            return f"group {self.group} has recovered: {figures}"
        again = "still " if self.level is self.was else ""
        return f"group {self.group} is {again}{self.level.word}: {figures}"

    def document(self) -> dict[str, Any]:
        """The notice, for JSON."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        return {
            "event": "lag",
            "text": self.text,
            "group": self.group,
            "level": self.level.word,
            "was": self.was.word,
            "records": self.reading.records,
            "behind_s": self.reading.behind_ms / 1000,
            "at": at.replace("+00:00", "Z"),
            "state": self.state,
            "members": self.members,
            "partitions": [partition_document(row) for row in self.partitions],
            "explain": f"headrace lag explain {self.group}",
        }


def partition_document(row: PartitionLag) -> dict[str, Any]:
    """A partition, for JSON."""
    return {
        "topic": row.topic,
        "partition": row.partition,
        "standing": row.standing.value,
        "committed": row.committed,
        "start": row.start,
        "end": row.end,
        "lag": row.lag,
        "behind_s": None if row.behind_ms is None else row.behind_ms / 1000,
        "lost": row.lost,
        "held": row.held,
        "member": row.member,
    }

"""Seeking: move a group that has no members to other offsets, by a plan that can be shown first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.admin.errors import AdminError, not_found
from headrace.client.admin.groups import commit_offsets, read_committed
from headrace.client.admin.offset_files import read_offsets
from headrace.client.admin.offsets import REQUEST_SECONDS, Bounds, read_bounds, read_offsets_at
from headrace.client.admin.partition_sets import PartitionSelection, show_partitions
from headrace.client.admin.seek_target import Kind, Target
from headrace.client.times import show_time
from headrace.client.wire.cluster import ClusterClient
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# How a broker refuses a commit from outside while the group has members.
OCCUPIED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The offset that a group has in one partition, if any, and the one that it gets."""

    key: TopicPartition
    old: int | None
    new: int | None
    end: int | None = None
    note: str = ""

    def row(self) -> dict[str, object]:
        """The move as a row of a listing; `lag` is how many records are left to read."""
        moves = self.old is not None and self.new is not None
        offset = self.old if self.new is None else self.new
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "from": self.old,
            "to": self.new,
            "change": (self.new or 0) - (self.old or 0) if moves else None,
            "lag": None if self.end is None or offset is None else max(0, self.end - offset),
            "note": self.note,
        }


def make_plan(
    admin: AdminClient,
    cluster: ClusterClient,
    group: str,
    target: Target,
    selection: PartitionSelection,
) -> list[Move]:
    """The moves that take a group to its target, in the selected partitions or in all it has."""
    committed = read_committed(cluster, group)
    given = _given_offsets(cluster, group, target, committed)
    keys = _partitions(admin, selection, committed if given is None else given, given is None)
    bounds = read_bounds(admin, keys)
    at_time = read_offsets_at(admin, bounds, target.number) if target.kind is Kind.TIME else {}
    moves = []
    for key in keys:
        old = committed.get(key)
        if key not in bounds:
            moves.append(Move(key=key, old=old, new=None, note="no such partition"))
            continue
        wanted = given.get(key) if given is not None else None
        moves.append(_move(key, old, bounds[key], target, wanted, at_time.get(key, -1)))
    return moves


def apply_plan(cluster: ClusterClient, group: str, plan: list[Move]) -> None:
    """Commit the new offsets; durable when this returns. AdminError if the group has members."""
    moves = changes(plan)
    if not moves:
        return
    try:
        commit_offsets(cluster, group, moves)
    except KafkaError as refusal:
        # Members may have joined since the group was listed.
        if refusal.code not in OCCUPIED:
            raise
        raise has_members(group) from None


def has_members(group: str) -> AdminError:
    """The error of a group that cannot seek."""
    return AdminError(
        f"group {group!r} has members, which would overwrite the offsets",
        f"stop them first: headrace group describe {group} lists them; headrace group rebalance "
        f"{group} --remove MEMBER removes one that has crashed",
    )


def changes(plan: list[Move]) -> dict[TopicPartition, int]:
    """The offsets of a plan that differ from the group's."""
    return {move.key: move.new for move in plan if move.new is not None and move.new != move.old}


def offsets(plan: list[Move]) -> dict[TopicPartition, int]:
    """All offsets of a plan, as a file keeps them."""
    return {move.key: move.new for move in plan if move.new is not None}


def _given_offsets(
    cluster: ClusterClient, group: str, target: Target, committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int] | None:
    """Offsets that the target gives one by one; None if they follow from the partitions."""
    if target.kind is Kind.FILE:
        return read_offsets(Path(target.name), group)
    if target.kind is Kind.GROUP:
        found = read_committed(cluster, target.name)
        if not found:
            raise AdminError(
                f"group {target.name!r} has no committed offsets",
                "headrace group list shows the groups",
            )
        return found
    return committed if target.kind is Kind.CURRENT else None


def _partitions(
    admin: AdminClient,
    selection: PartitionSelection,
    having: Mapping[TopicPartition, int],
    whole_topics: bool,
) -> list[TopicPartition]:
    """The selected partitions, else those with offsets, or all partitions of their topics.

    A seek must not leave out a partition without a commit: its reader's own settings would decide
    where it starts.
    """
    known = {
        name: sorted(topic.partitions)
        for name, topic in admin.list_topics(timeout=REQUEST_SECONDS).topics.items()
    }
    keys: set[TopicPartition] = set()
    for topic, numbers in selection.items():
        if topic not in known:
            raise not_found("topic", topic, known, "headrace topic list")
        missing = set(numbers or ()) - set(known[topic])
        if missing:
            raise AdminError(
                f"topic {topic!r} has no partition {min(missing)}",
                f"it has {show_partitions(topic, known[topic])}",
            )
        keys.update((topic, number) for number in numbers or known[topic])
    if selection:
        return sorted(keys)
    keys.update(having)
    if whole_topics:
        keys.update((topic, number) for topic, _ in having for number in known.get(topic, ()))
    return sorted(keys)


def _move(
    key: TopicPartition,
    old: int | None,
    bounds: Bounds,
    target: Target,
    given: int | None,
    at_time: int,
) -> Move:
    note = ""
    match target.kind:
        case Kind.EARLIEST:
            new = bounds.start
        case Kind.LATEST:
            new = bounds.end
        case Kind.OFFSET:
            new = target.number
        case Kind.SHIFT:
            if old is None:
                return Move(
                    key=key, old=old, new=None, end=bounds.end, note="no offset to shift from"
                )
            new = old + target.number
        case Kind.TIME:
            new = bounds.end if at_time < 0 else at_time
            if at_time < 0:
                note = f"nothing since {show_time(target.number)}"
        case _:
            if given is None:
                return Move(key=key, old=old, new=None, end=bounds.end, note="no offset given")
            new = given
    held = min(max(new, bounds.start), bounds.end)
    if held < new:
        note = f"{new} is after the end"
    elif held > new:
        note = f"{new} is before the start"
    return Move(key=key, old=old, new=held, end=bounds.end, note=note)

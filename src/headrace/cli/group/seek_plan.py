"""Moving a group to other places: a plan of moves first, then the commits."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.common.connection import REQUEST_TIMEOUT_SECONDS
from headrace.cli.common.durations import show_time
from headrace.cli.common.errors import CliError
from headrace.cli.common.partition_sets import Selection, show_partitions
from headrace.cli.group.offsets import Bounds, read_bounds, read_offsets_at
from headrace.cli.group.seek_files import read_places
from headrace.cli.group.seek_target import Kind, Target
from headrace.client.admin.groups import commit_offsets, read_committed
from headrace.client.wire.cluster import Cluster
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# What a broker says to a commit from outside of a group with members.
OCCUPIED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition's way: the place that the group has, if any, and the one that it gets."""

    key: TopicPartition
    old: int | None
    new: int | None
    end: int | None = None
    note: str = ""

    def row(self) -> dict[str, object]:
        """The move as it is listed; `lag` is what is left to read afterwards."""
        moves = self.old is not None and self.new is not None
        place = self.old if self.new is None else self.new
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "from": self.old,
            "to": self.new,
            "change": (self.new or 0) - (self.old or 0) if moves else None,
            "lag": None if self.end is None or place is None else max(0, self.end - place),
            "note": self.note,
        }


def make_plan(
    admin: AdminClient, cluster: Cluster, group: str, target: Target, selection: Selection
) -> list[Move]:
    """The moves that take a group to its target, in the partitions selected or in all it has."""
    committed = read_committed(cluster, group)
    given = _given_places(cluster, group, target, committed)
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


def carry_out(cluster: Cluster, group: str, plan: list[Move]) -> None:
    """Commit the new places; an error if the group has members, durable when this returns."""
    moves = changes(plan)
    if not moves:
        return
    try:
        commit_offsets(cluster, group, moves)
    except KafkaError as refusal:
        # Members may have come since the group was listed, and only the broker can know.
        if refusal.code not in OCCUPIED:
            raise
        raise has_members(group) from None


def has_members(group: str) -> CliError:
    """The error of a group that cannot be moved."""
    return CliError(
        f"group {group!r} has members, who would overwrite the places",
        f"stop them first: headrace group describe {group} lists them; those that are gone for "
        f"good: headrace group rebalance {group} --remove MEMBER",
    )


def changes(plan: list[Move]) -> dict[TopicPartition, int]:
    """The places of a plan that are not yet the group's."""
    return {move.key: move.new for move in plan if move.new is not None and move.new != move.old}


def places(plan: list[Move]) -> dict[TopicPartition, int]:
    """All places of a plan, as a file keeps them."""
    return {move.key: move.new for move in plan if move.new is not None}


def _given_places(
    cluster: Cluster, group: str, target: Target, committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int] | None:
    """Places that are given one by one; None if they follow from the partitions."""
    if target.kind is Kind.FILE:
        return read_places(Path(target.name), group)
    if target.kind is Kind.GROUP:
        found = read_committed(cluster, target.name)
        if not found:
            raise CliError(
                f"group {target.name!r} has no committed offsets",
                "headrace group list shows what there is",
            )
        return found
    return committed if target.kind is Kind.CURRENT else None


def _partitions(
    admin: AdminClient,
    selection: Selection,
    places: Mapping[TopicPartition, int],
    whole_topics: bool,
) -> list[TopicPartition]:
    """What was selected, else where there are places; whole topics where any place will do.

    A partition without a commit would be read from wherever its reader's settings say, so a seek
    to the end that left it out would not be one.
    """
    known = {
        name: sorted(topic.partitions)
        for name, topic in admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS).topics.items()
    }
    keys: set[TopicPartition] = set()
    for topic, numbers in selection.items():
        if topic not in known:
            near = difflib.get_close_matches(topic, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "headrace topic list shows what there is"
            raise CliError(f"there is no topic {topic!r}", hint)
        missing = set(numbers or ()) - set(known[topic])
        if missing:
            raise CliError(
                f"topic {topic!r} has no partition {min(missing)}",
                f"it has {show_partitions(topic, known[topic])}",
            )
        keys.update((topic, number) for number in numbers or known[topic])
    if selection:
        return sorted(keys)
    keys.update(places)
    if whole_topics:
        keys.update((topic, number) for topic, _ in places for number in known.get(topic, ()))
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
                    key=key, old=old, new=None, end=bounds.end, note="no place to shift from"
                )
            new = old + target.number
        case Kind.TIME:
            new = bounds.end if at_time < 0 else at_time
            if at_time < 0:
                note = f"nothing since {show_time(target.number)}"
        case _:
            if given is None:
                return Move(key=key, old=old, new=None, end=bounds.end, note="no place given")
            new = given
    held = min(max(new, bounds.start), bounds.end)
    if held < new:
        note = f"{new} is after the end"
    elif held > new:
        note = f"{new} is before the start"
    return Move(key=key, old=old, new=held, end=bounds.end, note=note)

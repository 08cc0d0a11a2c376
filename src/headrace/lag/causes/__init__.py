"""Why a group is behind: one function for each cause, over a snapshot; pure."""

from __future__ import annotations

from collections.abc import Callable

from headrace.lag.causes import contents, pace, readers
from headrace.lag.causes.words import flow, place, plural, waiting
from headrace.lag.findings import Cause, Commands, Finding, Remedy
from headrace.lag.places import Standing
from headrace.lag.snapshot import Snapshot

# The first of those that fit is the likeliest: the further down, the more another explains it.
CAUSES: tuple[Callable[[Snapshot, Commands], Finding | None], ...] = (
    readers.no_consumer,
    readers.not_subscribed,
    contents.out_of_range,
    readers.rebalance_storm,
    contents.errors,
    contents.key_skew,
    pace.burst,
    readers.more_consumers,
    readers.fewer_consumers,
    pace.slow_handler,
    contents.open_transaction,
)


def explain(snapshot: Snapshot, where: str = "") -> list[Finding]:
    """The causes that fit, the likeliest first; commands end with `where`."""
    commands = Commands(snapshot.group.group, where)
    found = [finding for cause in CAUSES if (finding := cause(snapshot, commands)) is not None]
    return found or [_nothing(snapshot, commands)]


def _nothing(snapshot: Snapshot, commands: Commands) -> Finding:
    if snapshot.lagging:
        return Finding(
            Cause.UNCLEAR,
            (
                f"{plural(waiting(snapshot), 'record')} wait, and nothing stands out",
                *flow(snapshot),
            ),
            (Remedy("look for longer", commands.of_group("lag explain GROUP --for 1m")),),
        )
    unknown = [row for row in snapshot.group.partitions if row.standing is not Standing.OK]
    if not unknown:
        return Finding(Cause.NONE, ("every partition is read to its end",))
    return Finding(Cause.NONE, tuple(f"{place(row)}: {row.standing.value}" for row in unknown))

"""Why a group is behind: one function for each cause, over a snapshot; pure.

`readers.py` has the causes in the consumers, `contents.py` those in the records; each returns a
finding (`findings.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.lag.causes import contents, readers
from headrace.lag.causes.findings import (
    Cause,
    Commands,
    Finding,
    Remedy,
    flow,
    place,
    plural,
    waiting,
)
from headrace.lag.group_lag import Standing
from headrace.lag.snapshot import Snapshot

# In order of likelihood: a later cause may be the effect of an earlier one.
CAUSES: tuple[Callable[[Snapshot, Commands], Finding | None], ...] = (
    readers.no_consumer,
    readers.not_subscribed,
    contents.out_of_range,
    readers.rebalance_storm,
    contents.errors,
    contents.key_skew,
    contents.burst,
    readers.more_consumers,
    readers.fewer_consumers,
    readers.slow_handler,
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
                f"{plural(waiting(snapshot), 'record')} waiting, and nothing stands out",
                *flow(snapshot),
            ),
            (Remedy("watch it for longer", commands.of_group("lag explain GROUP --for 1m")),),
        )
    unknown = [row for row in snapshot.group.partitions if row.standing is not Standing.OK]
    if not unknown:
        return Finding(Cause.NONE, ("every partition is read to its end",))
    return Finding(Cause.NONE, tuple(f"{place(row)}: {row.standing.value}" for row in unknown))

"""Causes that lie with the pace: more comes in than before, or each record takes long; pure."""

from __future__ import annotations

from headrace.lag.causes.words import flow, plural, waiting
from headrace.lag.findings import Cause, Commands, Finding, Remedy
from headrace.lag.snapshot import RECENT_SECONDS, Snapshot

BURST_TIMES = 3.0


def burst(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Most of what waits came in lately, and much faster than before."""
    if snapshot.group.is_empty:
        return None
    evidence, remedies, came = [], [], 0.0
    for topic in sorted({row.topic for row in snapshot.lagging}):
        inflows = [inflow for key, inflow in snapshot.inflows.items() if key[0] == topic]
        earlier = [it.earlier_per_s for it in inflows if it.earlier_per_s is not None]
        recent_per_s = sum(inflow.recent_per_s for inflow in inflows)
        if not earlier or not recent_per_s or recent_per_s < BURST_TIMES * sum(earlier):
            continue
        came += recent_per_s * RECENT_SECONDS
        evidence.append(
            f"{topic} got {recent_per_s:.1f} records/s in the last {RECENT_SECONDS / 60:.0f} "
            f"minutes, {sum(earlier):.1f} in the hour before"
        )
        limit = max(1, round(BURST_TIMES * sum(earlier)))
        remedies.append(
            Remedy(
                "slow its producers down until the group has caught up",
                commands("producer limit {} {}", topic, limit),
            )
        )
    if not evidence or came < waiting(snapshot) / 2:
        return None
    return Finding(
        Cause.BURST,
        (*evidence, *flow(snapshot)),
        (Remedy("watch it go down", commands.of_group("lag watch GROUP")), *remedies),
    )


def slow_handler(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Records are read, but each takes too long for what comes in or waits."""
    rows = [row for row in snapshot.lagging if row.key in snapshot.flows]
    owners = {row.member for row in rows if row.member is not None}
    read = sum(snapshot.flows[row.key].read for row in rows)
    written = sum(snapshot.flows[row.key].written for row in rows)
    if not owners or not read or not snapshot.watched_s or snapshot.unsettled:
        return None
    if read > written:
        left_s = waiting(snapshot) / snapshot.per_s(read - written)
        if left_s <= max(1.0, (snapshot.group.behind_ms or 0) / 1000):
            return None
    each_per_s = snapshot.per_s(read) / len(owners)
    topic = rows[0].topic
    partitions = 2 * snapshot.topic_partitions.get(topic, 1)
    return Finding(
        Cause.SLOW_HANDLER,
        (
            f"{plural(len(owners), 'member')} behind, at {each_per_s:.1f} records/s each: "
            f"{1000 / each_per_s:.0f} ms a record",
            *flow(snapshot),
        ),
        (
            Remedy(f'work on many keys at once: @app.handler("{topic}", order="key")'),
            Remedy(
                "have more partitions, then more consumers (keys move to others, so order is lost "
                "for a moment)",
                commands("topic alter {} --partitions {}", topic, partitions),
            ),
            commands.skip(),
        ),
    )

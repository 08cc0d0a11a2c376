"""Causes in the consumers: none, too few, too many, too slow, or rebalancing; pure."""

from __future__ import annotations

import shlex

from headrace.client.admin.groups import CLASSIC
from headrace.lag.causes.findings import (
    Cause,
    Commands,
    Finding,
    Remedy,
    flow,
    plural,
    waiting,
)
from headrace.lag.snapshot import Snapshot

# Fewer of them may be a deployment.
REBALANCES_MANY = 3
UNSETTLED_PART = 0.5
# Assignors that revoke every partition at each change.
EAGER = ("range", "roundrobin")
# Members of a share group may read one partition together.
SHARE = "share"


def no_consumer(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Records wait, and the group has no members."""
    if not snapshot.lagging or not snapshot.group.is_empty:
        return None
    return Finding(
        Cause.NO_CONSUMER,
        (
            f"the group has no members (state {snapshot.group.state or 'unknown'})",
            f"{plural(waiting(snapshot), 'record')} waiting in "
            f"{plural(len(snapshot.lagging), 'partition')}",
        ),
        (
            Remedy("start its consumers", "headrace run MODULE:APP"),
            commands.skip(),
            Remedy("delete the group if nobody needs it", commands.of_group("group delete GROUP")),
        ),
    )


def not_subscribed(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """The group has offsets in a topic that none of its members reads any more."""
    members = snapshot.group.members
    if not members or snapshot.unsettled:
        return None
    # A subscription by pattern names no topics, but its partitions show them.
    read = {topic for member in members for topic in member.topics}
    read |= {topic for member in members for topic, _ in member.owned}
    left = sorted({row.topic for row in snapshot.lagging} - read)
    if not left or not read:
        return None
    return Finding(
        Cause.NOT_SUBSCRIBED,
        tuple(f"the group has offsets in {topic}, but no member reads it" for topic in left),
        tuple(
            Remedy(
                "delete the offsets of the topic",
                commands.of_group(f"group delete GROUP --topic {shlex.quote(topic)}"),
            )
            for topic in left
        ),
    )


def rebalance_storm(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Members come and go so often that little work is done."""
    is_unsettled = (
        snapshot.measurements > 2 and snapshot.unsettled >= UNSETTLED_PART * snapshot.measurements
    )
    if snapshot.rebalances < REBALANCES_MANY and not is_unsettled:
        return None
    evidence = [
        f"members or their partitions changed {plural(snapshot.rebalances, 'time')} in "
        f"{snapshot.watched_s:.0f} s",
        f"a rebalance was under way in {snapshot.unsettled} of "
        f"{plural(snapshot.measurements, 'measurement')}",
    ]
    remedies = [
        Remedy("see which members come and go", commands.of_group("group describe GROUP")),
        Remedy("give slow members more time: a larger max.poll.interval.ms"),
        Remedy("let restarted members keep their partitions: group.instance.id"),
    ]
    assignor = snapshot.group.assignor
    if snapshot.group.type in (None, CLASSIC) and assignor in EAGER:
        evidence.append(f"the assignor {assignor} revokes all partitions at each change")
        remedies.append(
            Remedy("let the others keep working: partition.assignment.strategy=cooperative-sticky")
        )
    return Finding(Cause.REBALANCE_STORM, tuple(evidence), tuple(remedies))


def more_consumers(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Some members have no partition, although the group is behind."""
    members = snapshot.group.members or ()
    idle = [member for member in members if not member.owned]
    topics = sorted({row.topic for row in snapshot.lagging})
    partitions = sum(snapshot.topic_partitions.get(topic, 0) for topic in topics)
    is_shared = snapshot.group.type == SHARE
    if not idle or is_shared or snapshot.unsettled or not 0 < partitions < len(members):
        return None
    return Finding(
        Cause.MORE_CONSUMERS,
        (
            f"{plural(len(members), 'member')} for {plural(partitions, 'partition')} of "
            f"{', '.join(topics)}: {len(idle)} without one",
            *flow(snapshot),
        ),
        tuple(
            Remedy(
                "give each a partition (keys move to others, so order is lost for a moment)",
                commands("topic alter {} --partitions {}", topic, len(members)),
            )
            for topic in topics
        ),
    )


def fewer_consumers(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """A member owns several partitions that are behind, and could share them with another."""
    members = snapshot.group.members
    if not members or snapshot.group.type == SHARE:
        return None
    owners = [row.member for row in snapshot.lagging if row.member is not None]
    topics = sorted({row.topic for row in snapshot.lagging})
    partitions = sum(snapshot.topic_partitions.get(topic, 0) for topic in topics)
    most = max((owners.count(owner) for owner in owners), default=0)
    if most < 2 or len(members) >= partitions:
        return None
    return Finding(
        Cause.FEWER_CONSUMERS,
        (
            f"{plural(len(members), 'member')} for {plural(partitions, 'partition')} of "
            f"{', '.join(topics)}",
            f"one member owns {most} of the {plural(len(snapshot.lagging), 'partition')} that are "
            "behind",
            *flow(snapshot),
        ),
        (
            Remedy(
                f"start up to {partitions - len(members)} more of its consumers",
                "headrace run MODULE:APP",
            ),
            commands.skip(),
        ),
    )


def slow_handler(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Records are read, but more slowly than they come in or than the lag needs."""
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
            f"{1000 / each_per_s:.0f} ms per record",
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

"""Causes that lie with who reads: nobody, too few, too many, or none for long; pure."""

from __future__ import annotations

import shlex

from headrace.client.admin.groups import CLASSIC
from headrace.lag.causes.words import flow, plural, waiting
from headrace.lag.findings import Cause, Commands, Finding, Remedy
from headrace.lag.snapshot import Snapshot

# Fewer of them in a short look may be a deployment.
REBALANCES_MANY = 3
UNSETTLED_PART = 0.5
# Assignors that take every partition from everybody at each change.
EAGER = ("range", "roundrobin")
# The members of such a group may read one partition together.
SHARE = "share"


def no_consumer(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Records wait, and nobody is there to read them."""
    if not snapshot.lagging or not snapshot.group.is_empty:
        return None
    return Finding(
        Cause.NO_CONSUMER,
        (
            f"the group has no members (state {snapshot.group.state or 'unknown'})",
            f"{plural(waiting(snapshot), 'record')} wait in "
            f"{plural(len(snapshot.lagging), 'partition')}",
        ),
        (
            Remedy("start its consumers", "headrace run MODULE:APP"),
            commands.skip(),
            Remedy("forget the group if nobody needs it", commands.of_group("group delete GROUP")),
        ),
    )


def not_subscribed(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """The group has offsets in a topic that none of its members reads any more."""
    members = snapshot.group.members
    if not members or snapshot.unsettled:
        return None
    # A subscription by pattern names no topics, but partitions follow from it.
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
                "forget the topic's offsets",
                commands.of_group(f"group delete GROUP --topic {shlex.quote(topic)}"),
            )
            for topic in left
        ),
    )


def rebalance_storm(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Members come and go, and hardly anybody gets to work meanwhile."""
    is_unsettled = snapshot.looks > 2 and snapshot.unsettled >= UNSETTLED_PART * snapshot.looks
    if snapshot.rebalances < REBALANCES_MANY and not is_unsettled:
        return None
    evidence = [
        f"members or their partitions changed {plural(snapshot.rebalances, 'time')} in "
        f"{snapshot.watched_s:.0f} s",
        f"{snapshot.unsettled} of {plural(snapshot.looks, 'look')} found it in the middle of a "
        "rebalance",
    ]
    remedies = [
        Remedy("see who comes and goes", commands.of_group("group describe GROUP")),
        Remedy("give members that are slow more time: a larger max.poll.interval.ms"),
        Remedy("give members that are restarted their old place: group.instance.id"),
    ]
    assignor = snapshot.group.assignor
    if snapshot.group.type in (None, CLASSIC) and assignor in EAGER:
        evidence.append(f"the assignor {assignor} takes all partitions away at each change")
        remedies.append(
            Remedy("let others go on: partition.assignment.strategy=cooperative-sticky")
        )
    return Finding(Cause.REBALANCE_STORM, tuple(evidence), tuple(remedies))


def more_consumers(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Some members have nothing to do, although there is enough to do."""
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
            f"{', '.join(topics)}: {len(idle)} without any",
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
    """A member has several partitions that are behind, and could share them with another."""
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
            f"one member has {most} of the {plural(len(snapshot.lagging), 'partition')} that are "
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

"""Causes in the records: failures, keys, bursts, transactions, lost offsets; pure."""

from __future__ import annotations

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
from headrace.lag.group_lag import PartitionLag, Standing
from headrace.lag.snapshot import RECENT_SECONDS, Snapshot

# Consumers commit every five seconds by default: only one that does not move for longer is stuck.
STILL_SECONDS = 6.0
# Failures below this part of the records do not slow a group down.
FAILED_PART = 0.01
# A partition is skewed if it has this part of the lag, and twice its fair part of the inflow.
SKEWED_LAG_PART = 0.8
SKEWED_INFLOW_PART = 0.75
HOT_KEY_PART = 0.5
# A burst is this many times the rate before it.
BURST_TIMES = 3.0
TWO_WEEKS_MS = 14 * 86_400_000


def out_of_range(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """The group's offset is not within the partition."""
    evidence, remedies = [], []
    for row in snapshot.group.partitions:
        if row.standing is Standing.BEYOND:
            evidence.append(
                f"{place(row)} ends at {row.end}, the group is at {row.committed}: the topic was "
                "recreated, or has lost its end"
            )
            remedies.append(commands.skip(topic=place(row)))
        elif row.standing is Standing.EXPIRED:
            evidence.append(
                f"{place(row)} begins at {row.start}, the group is at {row.committed}: "
                f"{plural(row.lost, 'record')} were deleted before they were read"
            )
            longer = commands(f"topic alter {{}} --config retention.ms={TWO_WEEKS_MS}", row.topic)
            remedies.append(Remedy("keep records for longer", longer))
            remedies.append(commands.skip("earliest", place(row)))
    if not evidence:
        return None
    return Finding(Cause.OUT_OF_RANGE, tuple(evidence), tuple(dict.fromkeys(remedies)))


def errors(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Messages fail and are retried, or hold up those behind them."""
    evidence: list[str] = []
    remedies: list[Remedy] = []
    if not snapshot.lagging:
        return None
    for failures in snapshot.failures:
        if failures.total < FAILED_PART * snapshot.arrived(failures.topic):
            continue
        last = f"; the last: {failures.error}" if failures.error else ""
        if failures.dead_letters:
            letters = plural(failures.dead_letters, "dead letter")
            evidence.append(f"{letters} of {failures.topic} in the last hour{last}")
            listing = commands("dlq list --groups --topic {} --store URL", failures.topic)
            remedies.append(Remedy("see what fails, fix it, then headrace dlq replay", listing))
        if failures.waiting:
            messages = plural(failures.waiting, "message")
            evidence.append(f"{messages} of {failures.topic} waiting for a retry{last}")
            listing = commands("retry list --topic {} --store URL", failures.topic)
            remedies.append(Remedy("see what is retried", listing))
    sample = snapshot.sample
    if sample is not None and sample.resent and sample.resent >= FAILED_PART * sample.sampled:
        evidence.append(
            f"{sample.resent} of the next {plural(sample.sampled, 'record')} of {sample.key[0]} "
            "were sent again after a failure"
        )
    for row in _stuck(snapshot):
        evidence.append(
            f"{place(row)} has been at offset {row.committed} for {snapshot.watched_s:.0f} s, "
            f"although member {row.member} owns it"
        )
        record = commands("consume {} --partition {} --offset {} -c 1", *row.key, row.committed)
        remedies.append(Remedy("see the record at that offset", record))
        remedies.append(commands.skip("+1", place(row)))
    if not evidence:
        return None
    return Finding(Cause.ERRORS, tuple(evidence), tuple(dict.fromkeys(remedies)))


def _stuck(snapshot: Snapshot) -> list[PartitionLag]:
    """Partitions that do not move, although their owner reads no other."""
    if snapshot.watched_s < STILL_SECONDS or snapshot.unsettled or snapshot.rebalances:
        return []
    owned = [row for row in snapshot.lagging if row.member is not None]
    known = [row for row in owned if row.key in snapshot.flows]
    # A member may read one partition after the other.
    busy = {row.member for row in known if snapshot.flows[row.key].read}
    return [row for row in known if row.member not in busy]


def open_transaction(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """An open transaction holds records back."""
    held = [row for row in snapshot.group.partitions if row.held]
    if not held:
        return None
    return Finding(
        Cause.OPEN_TRANSACTION,
        tuple(
            f"{plural(row.held, 'record')} at the end of {place(row)} held back by an open "
            "transaction"
            for row in held
        ),
        (
            Remedy("see which producer has it open", commands("txn list --state ongoing")),
            Remedy("find hanging transactions", commands("txn hanging")),
        ),
    )


def key_skew(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """One partition gets far more than the others."""
    worst = next(iter(snapshot.lagging), None)
    partitions = 0 if worst is None else snapshot.topic_partitions.get(worst.topic, 0)
    if worst is None or partitions < 2 or snapshot.group.is_empty:
        return None
    total = sum(row.lag or 0 for row in snapshot.lagging if row.topic == worst.topic)
    per_s = {
        key: inflow.recent_per_s
        for key, inflow in snapshot.inflows.items()
        if key[0] == worst.topic
    }
    part = per_s.get(worst.key, 0.0) / (sum(per_s.values()) or 1.0)
    if (worst.lag or 0) < min(SKEWED_LAG_PART, 3 / partitions) * total:
        return None
    if part < min(SKEWED_INFLOW_PART, 2 / partitions):
        return None
    evidence = [
        f"{place(worst)} has {worst.lag} of the {plural(total, 'record')} waiting in {worst.topic}",
        f"it got {part:.0%} of the recent records; a fair part is {1 / partitions:.0%}",
    ]
    counting = commands(
        "consume {} --partition {} --offset {} -c 1000 -e -f '%k\\n'", *worst.key, worst.committed
    )
    counting = f"{counting} | sort | uniq -c | sort -rn | head"
    sample = snapshot.sample
    top, often = sample.top[0] if sample is not None and sample.top else ("", 0)
    if sample is not None and often >= HOT_KEY_PART * sample.sampled:
        evidence.append(
            f"{often} of its next {plural(sample.sampled, 'record')} have the key {top!r}"
        )
        remedies = [
            Remedy("see the keys", counting),
            Remedy("let its producers use a finer key: a key is always in one partition"),
        ]
    else:
        more = commands("topic alter {} --partitions {}", worst.topic, 2 * partitions)
        remedies = [
            Remedy("spread the keys (they move, so order is lost for a moment)", more),
            Remedy("see the keys", counting),
        ]
    return Finding(Cause.KEY_SKEW, tuple(evidence), tuple(remedies))


def burst(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Most of the waiting records came in recently, and much faster than before."""
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
        (Remedy("watch the lag go down", commands.of_group("lag watch GROUP")), *remedies),
    )

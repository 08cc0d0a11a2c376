"""Causes that lie with what is read: failures, keys, transactions, lost places; pure."""

from __future__ import annotations

from headrace.lag.causes.words import place, plural
from headrace.lag.findings import Cause, Commands, Finding, Remedy
from headrace.lag.places import PartitionLag, Standing
from headrace.lag.snapshot import Snapshot

# Consumers commit every five seconds unless told otherwise, so one must be watched for longer
# before it is said to stand still.
STILL_SECONDS = 6.0
# Failures below this part of what is read take no time worth speaking of.
FAILED_PART = 0.01
# A partition with this part of the lag, and twice its fair part of what comes in, is skewed.
SKEWED_LAG_PART = 0.8
SKEWED_INFLOW_PART = 0.75
HOT_KEY_PART = 0.5
TWO_WEEKS_MS = 14 * 86_400_000


def out_of_range(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """The group's place is not among what the partition holds."""
    evidence, remedies = [], []
    for row in snapshot.group.partitions:
        if row.standing is Standing.BEYOND:
            evidence.append(
                f"{place(row)} ends at {row.end}, the group is at {row.committed}: the topic was "
                "made anew, or has lost its end"
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
    """Messages fail: they are tried again, or hold up those behind them."""
    evidence: list[str] = []
    remedies: list[Remedy] = []
    if not snapshot.lagging:
        return None
    for failures in snapshot.failures:
        if failures.total < FAILED_PART * snapshot.arrived(failures.topic):
            continue
        said = f"; the last: {failures.error}" if failures.error else ""
        if failures.dead_letters:
            letters = plural(failures.dead_letters, "dead letter")
            evidence.append(f"{letters} of {failures.topic} in the last hour{said}")
            listing = commands("dlq list --groups --topic {} --store URL", failures.topic)
            remedies.append(Remedy("see what fails, mend it, then headrace dlq replay", listing))
        if failures.waiting:
            messages = plural(failures.waiting, "message")
            evidence.append(f"{messages} of {failures.topic} wait for another try{said}")
            listing = commands("retry list --topic {} --store URL", failures.topic)
            remedies.append(Remedy("see what is tried again", listing))
    sample = snapshot.sample
    if sample is not None and sample.resent and sample.resent >= FAILED_PART * sample.looked_at:
        evidence.append(
            f"{sample.resent} of the next {plural(sample.looked_at, 'record')} of {sample.key[0]} "
            "were sent again after a failure"
        )
    for row in _stuck(snapshot):
        evidence.append(
            f"{place(row)} has stood at offset {row.committed} for {snapshot.watched_s:.0f} s, "
            f"although member {row.member} has it"
        )
        record = commands("consume {} --partition {} --offset {} -c 1", *row.key, row.committed)
        remedies.append(Remedy("see the record that it stands at", record))
        remedies.append(commands.skip("+1", place(row)))
    if not evidence:
        return None
    return Finding(Cause.ERRORS, tuple(evidence), tuple(dict.fromkeys(remedies)))


def _stuck(snapshot: Snapshot) -> list[PartitionLag]:
    """Partitions that do not move, although their owner is not busy with others."""
    if snapshot.watched_s < STILL_SECONDS or snapshot.unsettled or snapshot.rebalances:
        return []
    owned = [row for row in snapshot.lagging if row.member is not None]
    known = [row for row in owned if row.key in snapshot.flows]
    # A member may read one partition after the other.
    busy = {row.member for row in known if snapshot.flows[row.key].read}
    return [row for row in known if row.member not in busy]


def open_transaction(snapshot: Snapshot, commands: Commands) -> Finding | None:
    """Records are there, but nobody who reads committed ones may have them yet."""
    held = [row for row in snapshot.group.partitions if row.held]
    if not held:
        return None
    return Finding(
        Cause.OPEN_TRANSACTION,
        tuple(
            f"{plural(row.held, 'record')} at the end of {place(row)} stand behind an open "
            "transaction"
            for row in held
        ),
        (
            Remedy("see who has it open", commands("txn list --state ongoing")),
            Remedy("find one that nobody will end", commands("txn hanging")),
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
        f"{place(worst)} has {worst.lag} of the {plural(total, 'record')} that wait in "
        f"{worst.topic}",
        f"it got {part:.0%} of what came in lately; a fair part is {1 / partitions:.0%}",
    ]
    counting = commands(
        "consume {} --partition {} --offset {} -c 1000 -e -f '%k\\n'", *worst.key, worst.committed
    )
    counting = f"{counting} | sort | uniq -c | sort -rn | head"
    sample = snapshot.sample
    top, often = sample.top[0] if sample is not None and sample.top else ("", 0)
    if sample is not None and often >= HOT_KEY_PART * sample.looked_at:
        evidence.append(
            f"{often} of its next {plural(sample.looked_at, 'record')} have the key {top!r}"
        )
        remedies = [
            Remedy("see the keys", counting),
            Remedy("have its producers use a finer key: one key is always one partition"),
        ]
    else:
        more = commands("topic alter {} --partitions {}", worst.topic, 2 * partitions)
        remedies = [
            Remedy("spread the keys (they move, so order is lost for a moment)", more),
            Remedy("see the keys", counting),
        ]
    return Finding(Cause.KEY_SKEW, tuple(evidence), tuple(remedies))

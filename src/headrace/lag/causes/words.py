"""Words that evidence is made of."""

from __future__ import annotations

from headrace.lag.places import PartitionLag
from headrace.lag.snapshot import Snapshot


def place(row: PartitionLag) -> str:
    """A partition as `--topic` takes it."""
    return f"{row.topic}:{row.partition}"


def plural(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def waiting(snapshot: Snapshot) -> int:
    """All records that the group has still to read."""
    return sum(row.lag or 0 for row in snapshot.lagging)


def flow(snapshot: Snapshot) -> tuple[str, ...]:
    """What came in and what was read while it was watched; nothing if it was not."""
    flows = [snapshot.flows[row.key] for row in snapshot.lagging if row.key in snapshot.flows]
    if not flows or not snapshot.watched_s:
        return ()
    written, read = sum(flow.written for flow in flows), sum(flow.read for flow in flows)
    text = (
        f"in {snapshot.watched_s:.0f} s, {snapshot.per_s(written):.1f} records/s came in and "
        f"{snapshot.per_s(read):.1f} were read"
    )
    if read > written:
        left_s = waiting(snapshot) / snapshot.per_s(read - written)
        return (f"{text}: at this pace it has caught up in {left_s:.0f} s",)
    return (text,)

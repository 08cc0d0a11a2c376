"""Findings: a likely cause of lag, its evidence, and commands that help; pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from headrace.lag.group_lag import PartitionLag
from headrace.lag.snapshot import Snapshot


class Cause(StrEnum):
    """Why a group may be behind."""

    NONE = "no lag"
    UNCLEAR = "unclear"
    NO_CONSUMER = "no consumer"
    NOT_SUBSCRIBED = "nobody reads the topic"
    OUT_OF_RANGE = "offset out of range"
    REBALANCE_STORM = "rebalance storm"
    ERRORS = "errors and retries"
    OPEN_TRANSACTION = "open transaction"
    KEY_SKEW = "key skew"
    BURST = "burst"
    MORE_CONSUMERS = "more consumers than partitions"
    FEWER_CONSUMERS = "fewer consumers than partitions"
    SLOW_HANDLER = "slow handler"


class Remedy(NamedTuple):
    """What helps, and the command for it; empty if it is done in the application."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One likely cause."""

    cause: Cause
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()

    def document(self) -> dict[str, Any]:
        """The finding, for JSON."""
        return {
            "cause": self.cause.value,
            "evidence": list(self.evidence),
            "remedies": [remedy._asdict() for remedy in self.remedies],
        }


class Commands:
    """Shell commands for one group; `where` are the options that select the cluster."""

    def __init__(self, group: str, where: str = "") -> None:
        self._group = shlex.quote(group)
        self._where = f" {where}" if where else ""

    def __call__(self, words: str, *names: object) -> str:
        """A `headrace` command; each `{}` in the words is replaced by a quoted name."""
        return f"headrace {words.format(*(shlex.quote(str(name)) for name in names))}{self._where}"

    def skip(self, to: str = "latest", topic: str | None = None) -> Remedy:
        """The remedy to skip records, as a dry run first."""
        part = "" if topic is None else f" --topic {shlex.quote(topic)}"
        return Remedy(
            "skip records that nobody needs (stop the members, then run it without --dry-run)",
            self(f"group seek {self._group} --to {to}{part} --dry-run"),
        )

    def of_group(self, words: str) -> str:
        """A command whose first argument is the group."""
        verb, _, rest = words.partition(" GROUP")
        return self(f"{verb} {self._group}{rest}")


def place(row: PartitionLag) -> str:
    """A partition as `--topic` takes it."""
    return f"{row.topic}:{row.partition}"


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def waiting(snapshot: Snapshot) -> int:
    """All records that the group has still to read."""
    return sum(row.lag or 0 for row in snapshot.lagging)


def flow(snapshot: Snapshot) -> tuple[str, ...]:
    """What came in and what was read while the group was watched, as evidence."""
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
        return (f"{text}: at this rate it catches up in {left_s:.0f} s",)
    return (text,)

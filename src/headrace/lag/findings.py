"""Findings: a likely cause of lag, the evidence for it, and commands that remedy it; pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


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
    """What helps, and the command that does it; what is done in an application has none."""

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
    """Commands for one group, as a shell takes them; `where` is what they need to find it."""

    def __init__(self, group: str, where: str = "") -> None:
        self._group = shlex.quote(group)
        self._where = f" {where}" if where else ""

    def __call__(self, words: str, *names: object) -> str:
        """A command of this tool; `{}` in the words stand for names, to be quoted."""
        return f"headrace {words.format(*(shlex.quote(str(name)) for name in names))}{self._where}"

    def skip(self, to: str = "latest", topic: str | None = None) -> Remedy:
        """Skip what is not worth reading any more, as a dry run first."""
        part = "" if topic is None else f" --topic {shlex.quote(topic)}"
        return Remedy(
            "skip what need not be read any more (without --dry-run, when its members are stopped)",
            self(f"group seek {self._group} --to {to}{part} --dry-run"),
        )

    def of_group(self, words: str) -> str:
        """A command whose first argument is the group."""
        verb, _, rest = words.partition(" GROUP")
        return self(f"{verb} {self._group}{rest}")

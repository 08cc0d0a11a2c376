"""A checker of log-level anomalies in what clients sent, were told, and read.

A history is a list of operations, also as JSON lines. The keys are partitions; values are unique
within a partition; what a client was not told is an offset of None. The names of the anomalies are
those of Jepsen's Kafka workload.

    {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"]]}     acknowledged
    {"process": 0, "kind": "maybe", "key": "t-0", "values": [[null, "c"]]}          unknown outcome
    {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
    {"process": 1, "kind": "seek", "key": "t-0"}            the next poll may start anywhere
    {"process": 1, "kind": "subscribe"}                     rebalances may move every position
    {"process": 2, "kind": "final", "key": "t-0", "values": [[0, "a"], [1, "b"]]}   a fresh reader
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Value = int | str
Kind = Literal["send", "maybe", "poll", "seek", "subscribe", "final"]
Placed = tuple[int | None, Value]

DETAILS_MAX = 20


@dataclass(slots=True)
class Operation:
    """One client call; a send of many values stands for many sends in that order."""

    process: int
    kind: Kind
    key: str = ""
    values: list[Placed] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(
            {
                "process": self.process,
                "kind": self.kind,
                "key": self.key,
                "values": [list(placed) for placed in self.values],
            }
        )

    @classmethod
    def from_json(cls, line: str) -> Operation:
        row = json.loads(line)
        values: list[Placed] = [(offset, value) for offset, value in row.get("values", [])]
        return cls(row["process"], row["kind"], row.get("key", ""), values)


class Anomaly(NamedTuple):
    name: str
    key: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} in {self.key}: {self.detail}"


class Checker:
    """Takes operations one by one; `anomalies()` then gives the verdict over all of them."""

    def __init__(self) -> None:
        self._keys: dict[str, _KeyHistory] = defaultdict(_KeyHistory)
        self._subscribed: set[int] = set()

    def add(self, operation: Operation) -> None:
        if operation.kind == "subscribe":
            self._subscribed.add(operation.process)
            return
        history = self._keys[operation.key]
        process, values = operation.process, operation.values
        if operation.kind in ("send", "maybe"):
            history.sends[process].append(values)
            if operation.kind == "send":
                history.acknowledged.update((value, offset) for offset, value in values)
        elif operation.kind == "seek":
            history.polls[process].append([])
        else:
            # A fresh reader starts anywhere by definition; a group member may be moved anywhere.
            if operation.kind == "final":
                history.polls[process].append([])
                history.final.update(value for _, value in values)
                history.has_final = True
            elif process in self._subscribed:
                history.polls[process].append([])
            history.read.update(value for _, value in values)
            history.polls[process].append(values)
        for offset, value in values:
            if offset is not None:
                history.place(offset, value)

    def anomalies(self) -> list[Anomaly]:
        return [
            Anomaly(name, key, detail)
            for key, history in self._keys.items()
            for name, detail in history.anomalies()
        ]


def check(history: Iterable[Operation]) -> list[Anomaly]:
    """All anomalies of a history."""
    checker = Checker()
    for operation in history:
        checker.add(operation)
    return checker.anomalies()


def load(lines: Iterable[str]) -> list[Operation]:
    """A history from JSON lines; blank lines are skipped."""
    return [Operation.from_json(line) for line in lines if line.strip()]


class _KeyHistory:
    """What is known of one partition."""

    def __init__(self) -> None:
        self.values_at: dict[int, Value] = {}
        self.offsets_of: dict[Value, int] = {}
        self.conflicts: list[tuple[str, str]] = []
        self.acknowledged: dict[Value, int | None] = {}
        self.read: set[Value] = set()
        self.final: set[Value] = set()
        self.has_final = False
        self.sends: dict[int, list[list[Placed]]] = defaultdict(list)
        self.polls: dict[int, list[list[Placed]]] = defaultdict(list)

    def place(self, offset: int, value: Value) -> None:
        """Note that `value` is at `offset`, whoever said so."""
        other = self.values_at.setdefault(offset, value)
        if other != value:
            self.conflicts.append(
                ("inconsistent-offsets", f"offset {offset} is {other!r} and {value!r}")
            )
        place = self.offsets_of.setdefault(value, offset)
        if place != offset:
            self.conflicts.append(("duplicate", f"{value!r} is at offsets {place} and {offset}"))

    def anomalies(self) -> Iterator[tuple[str, str]]:
        yield from self.conflicts[:DETAILS_MAX]
        yield from self._missing()
        offsets = sorted(self.values_at)
        for process, batches in self.sends.items():
            yield from self._send_order(process, batches)
        for process, polls in self.polls.items():
            yield from self._poll_order(process, polls, offsets)

    def _missing(self) -> Iterator[tuple[str, str]]:
        highest_read = max(
            (self.offsets_of[value] for value in self.read if value in self.offsets_of), default=-1
        )
        reported = 0
        for value, offset in self.acknowledged.items():
            lost = value not in self.read
            if lost and offset is not None and offset < highest_read:
                name = "lost-write"
            elif self.has_final and value not in self.final:
                name = "unseen"
            else:
                continue
            reported += 1
            if reported > DETAILS_MAX:
                yield name, "and more"
                return
            yield name, f"{value!r} was acknowledged at offset {offset}"

    def _send_order(self, process: int, batches: list[list[Placed]]) -> Iterator[tuple[str, str]]:
        last = -1
        for batch in batches:
            for told, value in batch:
                # What the client was not told, a reader may have found out since.
                offset = told if told is not None else self.offsets_of.get(value)
                if offset is None:
                    continue
                if offset <= last:
                    yield (
                        "nonmonotonic-send",
                        f"process {process} sent {value!r} to offset {offset} after {last}",
                    )
                last = offset

    def _poll_order(
        self, process: int, polls: list[list[Placed]], offsets: list[int]
    ) -> Iterator[tuple[str, str]]:
        last: int | None = None
        for poll in polls:
            if not poll:
                last = None  # A seek, a rebalance or a fresh reader: the position is free.
            for offset, value in poll:
                assert offset is not None, "a reader always knows the offset"
                if last is not None and offset <= last:
                    yield (
                        "nonmonotonic-poll",
                        f"process {process} read {value!r} at offset {offset} after {last}",
                    )
                elif last is not None:
                    index = bisect_left(offsets, last + 1)
                    if offsets[index] < offset:
                        yield (
                            "poll-skip",
                            f"process {process} went from offset {last} to {offset} over "
                            f"{self.values_at[offsets[index]]!r} at {offsets[index]}",
                        )
                last = offset

"""A checker of handlers' anomalies: what was sent, what it did, what failed, what was given up.

A history is a list of events, also as JSON lines. Effects are in the order in which they were
committed; `n` counts the messages of a key; a failure is noted by the handler itself, outside of
any transaction, before it raises. What stands in the store and in the dead letter topic is noted at
the end, when nothing moves any more.

    {"kind": "sent", "handler": "bill", "id": "a", "key": "k", "n": 1, "tries": 4}
    {"kind": "failed", "handler": "bill", "id": "a"}
    {"kind": "effect", "handler": "bill", "id": "a", "key": "k", "n": 1}
    {"kind": "parked", "handler": "bill", "id": "a"}      still in the retry table
    {"kind": "indexed", "handler": "bill", "id": "a"}     a dead letter, says the store
    {"kind": "dead", "handler": "bill", "id": "a"}        a dead letter, found in its topic

`tries` is how often a message must have failed before it may be given up; 0 is one that no handler
can be called with. A message that stands twice in its topic, with one id, is sent twice: once one
of them is given up, the other may still have its effect, which like a replay's comes when it comes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

Kind = Literal["sent", "failed", "effect", "parked", "indexed", "dead"]
Place = tuple[str, str]  # handler and id

DETAILS_MAX = 20


@dataclass(slots=True, frozen=True)
class Event:
    """One thing that is known of one message at one handler."""

    kind: Kind
    handler: str
    id: str
    key: str = ""
    n: int = 0
    tries: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Event:
        return cls(**json.loads(line))


class HandlerAnomaly(NamedTuple):
    name: str
    handler: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} at {self.handler}: {self.detail}"


class HandlersChecker:
    """Takes events one by one; `anomalies()` then gives the verdict over all of them."""

    def __init__(self) -> None:
        self._sent: dict[Place, int] = {}
        self._copies: Counter[Place] = Counter()
        self._effects: Counter[Place] = Counter()
        self._failures: Counter[Place] = Counter()
        self._parked: set[Place] = set()
        self._indexed: set[Place] = set()
        self._dead: set[Place] = set()
        self._last: dict[Place, int] = defaultdict(lambda: -1)  # by handler and key
        self._reordered: list[tuple[Place, str]] = []

    def add(self, event: Event) -> None:
        place = (event.handler, event.id)
        if event.kind == "sent":
            self._sent[place] = event.tries
            self._copies[place] += 1
        elif event.kind == "effect":
            self._effects[place] += 1
            if self._effects[place] == 1:
                self._follow(event)
        elif event.kind == "failed":
            self._failures[place] += 1
        else:
            found = {"parked": self._parked, "indexed": self._indexed, "dead": self._dead}
            found[event.kind].add(place)

    def anomalies(self) -> list[HandlerAnomaly]:
        found: list[HandlerAnomaly] = []
        for name, details in (
            ("dup-effect", self._repeated()),
            ("lane-reorder", self._out_of_order()),
            ("dlq-loss", self._letters_lost()),
            ("dlq-early", self._letters_early()),
        ):
            found += _named(name, details)
        lost = list(self._lost())
        found += _named("lost-retry", (row for row in lost if self._failures[row[0]]))
        found += _named("unhandled", (row for row in lost if not self._failures[row[0]]))
        return found

    def _follow(self, event: Event) -> None:
        """A first effect comes after those of the messages before it on its key."""
        lane = (event.handler, event.key)
        if event.n <= self._last[lane]:
            place = (event.handler, event.id)
            before = self._last[lane]
            self._reordered.append(
                (place, f"{event.id} is number {event.n} of {event.key}, after number {before}")
            )
        self._last[lane] = event.n

    def _out_of_order(self) -> Iterator[tuple[Place, str]]:
        for place, detail in self._reordered:
            if self._copies[place] < 2 or place not in self._indexed | self._dead:
                yield place, detail

    def _repeated(self) -> Iterator[tuple[Place, str]]:
        for place, count in self._effects.items():
            if count > 1:
                yield place, f"{place[1]} had its effect {count} times"

    def _lost(self) -> Iterator[tuple[Place, str]]:
        put_away = self._parked | self._indexed | self._dead
        for place in self._sent:
            if place not in self._effects and place not in put_away:
                failures = self._failures[place]
                yield place, f"{place[1]} failed {failures} times and is nowhere"

    def _letters_lost(self) -> Iterator[tuple[Place, str]]:
        for place in sorted(self._indexed - self._dead):
            yield place, f"{place[1]} is in the index and not in the topic"
        for place in sorted(self._dead - self._indexed):
            yield place, f"{place[1]} is in the topic and not in the index"

    def _letters_early(self) -> Iterator[tuple[Place, str]]:
        for place in sorted(self._indexed | self._dead):
            if self._effects[place] and self._copies[place] < 2:
                yield place, f"{place[1]} had its effect and is a dead letter"
            elif self._failures[place] < self._sent.get(place, 0):
                tries = self._sent[place]
                yield place, f"{place[1]} failed {self._failures[place]} of {tries} times"


def check_handlers(history: Iterable[Event]) -> list[HandlerAnomaly]:
    """All anomalies of a history."""
    checker = HandlersChecker()
    for event in history:
        checker.add(event)
    return checker.anomalies()


def load_events(lines: Iterable[str]) -> list[Event]:
    """A history from JSON lines; blank lines are skipped."""
    return [Event.from_json(line) for line in lines if line.strip()]


def _named(name: str, details: Iterable[tuple[Place, str]]) -> Iterator[HandlerAnomaly]:
    for count, (place, detail) in enumerate(details):
        if count == DETAILS_MAX:
            yield HandlerAnomaly(name, place[0], "and more")
            return
        yield HandlerAnomaly(name, place[0], detail)

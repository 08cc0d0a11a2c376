"""A checker of the dispatcher's anomalies: which items were submitted, ran where, and ended how.

A history is a list of events; times are of one clock that all processes share.

    submitted  an item was kept by its node
    start      a worker began an item on a partition, under a fence
    end        it ended
    died       a process was killed: what it ran has ended by then
    outcome    the done topic says what became of an item
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["submitted", "start", "end", "died", "outcome"]

FOREVER_NS = 1 << 62


class DispatchEvent(NamedTuple):
    """One thing that happened."""

    kind: Kind
    at_ns: int = 0
    life: int = 0  # the process
    id: str = ""
    partition: int = 0
    fence: str = ""
    state: str = ""


class DispatchAnomaly(NamedTuple):
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


@dataclass(slots=True)
class Flight:
    """A run of an item, from its start to its end or its process's."""

    life: int
    id: str
    fence: str
    start_ns: int
    end_ns: int = FOREVER_NS


class DispatchChecker:
    """Takes events in any order; `anomalies()` then gives the verdict over all of them."""

    def __init__(self, events: Iterable[DispatchEvent]) -> None:
        self.submitted: set[str] = set()
        self.finished: set[str] = set()
        self.runs: Counter[str] = Counter()
        self.refused = 0
        self._flights: dict[int, list[Flight]] = defaultdict(list)
        open_: dict[tuple[int, int, str], Flight] = {}
        for event in sorted(events, key=lambda event: event.at_ns):
            if event.kind == "submitted":
                self.submitted.add(event.id)
            elif event.kind == "outcome":
                self.refused += event.state == "refused"
                if event.state != "refused":
                    self.finished.add(event.id)
            elif event.kind == "start":
                self.runs[event.id] += 1
                flight = Flight(event.life, event.id, event.fence, event.at_ns)
                self._flights[event.partition].append(flight)
                open_[event.life, event.partition, event.id] = flight
            elif event.kind == "end":
                open_.pop((event.life, event.partition, event.id)).end_ns = event.at_ns
            else:
                for key in [key for key in open_ if key[0] == event.life]:
                    open_.pop(key).end_ns = event.at_ns

    @property
    def repeats(self) -> int:
        """Runs beyond the first of an item: allowed, and counted."""
        return sum(count - 1 for count in self.runs.values())

    def anomalies(self) -> list[DispatchAnomaly]:
        return [*self._lost(), *self._double()]

    def _lost(self) -> Iterator[DispatchAnomaly]:
        for id in sorted(self.submitted - self.finished):
            yield DispatchAnomaly("item-lost", f"{id} has no outcome")
        for id in sorted(self.finished - self.runs.keys()):
            yield DispatchAnomaly("item-lost", f"{id} is finished and never ran")

    def _double(self) -> Iterator[DispatchAnomaly]:
        for partition, flights in self._flights.items():
            by_fence: dict[str, str] = {}
            last: Flight | None = None
            for flight in sorted(flights, key=lambda flight: flight.start_ns):
                if by_fence.setdefault(flight.fence, flight.id) != flight.id:
                    yield DispatchAnomaly(
                        "token-double-grant",
                        f"{by_fence[flight.fence]} and {flight.id} ran on partition {partition} "
                        f"with the one fence {flight.fence}",
                    )
                # The same item may run twice when its process seemed dead; two items never may.
                if last is not None and flight.start_ns < last.end_ns and flight.id != last.id:
                    yield DispatchAnomaly(
                        "token-double-grant",
                        f"{last.id} ({last.fence}) and {flight.id} ({flight.fence}) ran on "
                        f"partition {partition} at once",
                    )
                if last is None or flight.end_ns > last.end_ns:
                    last = flight

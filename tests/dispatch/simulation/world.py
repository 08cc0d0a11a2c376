"""A world in virtual time: chance, what happens when, the work topic, the done topic, the store."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from heapq import heappop, heappush
from typing import Any, NamedTuple

from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.records import OutcomeState
from headrace.dispatch.tokens.scheduler import Policy
from headrace.dispatch.tokens.store import Fence, Token
from headrace.dispatch.tokens.token_table import TokenTable

LIMITS = DispatchLimits(
    lease_ms=1_000,
    offer_ms=200,
    heal_interval_ms=200,
    heal_misses=2,
    ask_interval_ms=300,
    tick_ms=100,
)
# One way of a message, while nothing is wrong.
TRIP_MS_MAX = 10


class Record(NamedTuple):
    """One of the work topic's; without a job it has no value."""

    fence: Fence | None
    job: str | None


class Done(NamedTuple):
    """One of the done topic's."""

    job: str
    outcome: OutcomeState
    partition: int
    offset: int
    fence: Fence | None


class Flight(NamedTuple):
    """A job that runs."""

    partition: int
    node: str
    epoch: int


class Violation(AssertionError):
    """The protocol has broken a promise."""


class World:
    """Everything that is not a node."""

    def __init__(self, seed: int, policy: Policy = "fair") -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.is_faulty = True
        # Whether nothing happens that may let two nodes run a job of one partition at a time.
        self.is_gentle = self.chance.random() < 0.4
        self.logs: list[list[Record]] = []
        self.done: list[Done] = []
        self.outcomes: set[tuple[int, int]] = set()
        self.finished: set[str] = set()
        self.flights: set[Flight] = set()
        self.fences: set[Token] = set()
        self.policy: Policy = policy
        self.store_is_down = False
        self._births = 0
        self.table = self._new_table()
        self._saved = deepcopy(self.table)
        self.agenda: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0
        self.on_record: Callable[[int], None] = lambda partition: None
        self.on_done: Callable[[Done], None] = lambda done: None

    # Time and chance

    def after(self, delay_ms: int, deed: Callable[..., object], *args: Any) -> None:
        self._count += 1
        heappush(self.agenda, (self.now_ms + delay_ms, self._count, deed, args))

    def run_until(self, end_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        while self.agenda and self.agenda[0][0] <= end_ms:
            self.now_ms, _, deed, args = heappop(self.agenda)
            deed(*args)
            if is_over():
                return
        self.now_ms = end_ms

    def trip_ms(self, worst_ms: int = 0) -> int:
        """One way of a message, now and then a very slow one."""
        if worst_ms and self.is_faulty and self.chance.random() < 0.04:
            return self.chance.randrange(worst_ms)
        return 1 + int(self.chance.random() * TRIP_MS_MAX)

    def happens(self, likely: float) -> bool:
        """Whether a fault of this likelihood strikes now."""
        return self.is_faulty and self.chance.random() < likely

    # The topics

    def append(self, partition: int, record: Record) -> None:
        self.logs[partition].append(record)
        self.on_record(partition)

    def write_done(self, done: Done) -> None:
        self.done.append(done)
        self.outcomes.add((done.partition, done.offset))
        if done.outcome != "refused":
            self.finished.add(done.job)
        self.on_done(done)

    def is_settled(self, job: str, partition: int, offset: int) -> bool:
        return job in self.finished or (partition, offset) in self.outcomes

    # What runs

    def take_off(self, flight: Flight, fence: Fence, offset: int, *, is_newest: bool) -> None:
        """A job begins to run: its fence was never used, and no other valid one is in use."""
        if self.is_gentle and (flight.partition, offset) in self.outcomes:
            raise Violation(f"{offset} of partition {flight.partition} ran, though it is settled")
        token = Token(flight.partition, fence)
        if token in self.fences:
            raise Violation(f"two jobs ran under fence {fence} of partition {flight.partition}")
        self.fences.add(token)
        others = [f for f in self.flights if f.partition == flight.partition]
        if self.is_gentle and others:
            raise Violation(f"{flight} began beside {others}")
        if is_newest and any(other.epoch == flight.epoch for other in others):
            raise Violation(f"{flight} began beside {others}, both valid")
        self.flights.add(flight)

    def forget_fences(self) -> None:
        """The group was deleted while no node was alive: its generations start again."""
        self.fences.clear()

    # The store

    def _new_table(self) -> TokenTable:
        self._births += 1
        return TokenTable(f"birth {self._births}", self.now_ms, LIMITS, self.policy)

    def flush_store(self) -> None:
        self.table = self._new_table()

    def save_store(self) -> None:
        """What a replica of the store knows."""
        self._saved = deepcopy(self.table)

    def fail_over(self) -> None:
        """The replica takes over; what it did not know yet is lost."""
        self.table = deepcopy(self._saved)

"""A small world for half messages: topics as lists, whole transactions, owners that take over.

The machine and the ledger's state are the real ones; what is played is Kafka and time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.client.message import ID_HEADER, Message
from headrace.ledger.entries import EntryCache
from headrace.ledger.half.commands import HALF_HEADER, HALF_TOPIC
from headrace.ledger.half.machine import HalfLimits, HalfMachine
from headrace.ledger.machine import InvalidCommand, LedgerEntry, LedgerMachine, OutgoingRecord
from headrace.ledger.records import state_key, state_value
from headrace.ledger.state_partition import PlannedTransaction, StatePartition

START_MS = 1_700_000_000_000
TARGET, GROUP = "orders", "shop"
LIMITS = HalfLimits(first_check_ms=6_000, check_every_ms=30_000, checks_max=3)
# A plan takes so few that several are needed.
PLAN_MOST = 3

Pairs = list[tuple[str, bytes | None]]


def command(kind: str, id: str, **more: str) -> Pairs:
    """The headers of a command; `more` by the last words of their names."""
    headers = {HALF_HEADER: kind, ID_HEADER: id}
    headers |= {f"headrace-{name.replace('_', '-')}": value for name, value in more.items()}
    return [(name, value.encode()) for name, value in headers.items()]


def prepare_headers(id: str, **more: str) -> Pairs:
    """The headers of a prepare for the topic and group of these tests."""
    return command("prepare", id, target=TARGET, group=GROUP, **more)


@dataclass
class Topics:
    """What the brokers hold, committed records only."""

    now_ms: int = START_MS
    inputs: tuple[list[Message], ...] = ()
    taken: list[int] = field(default_factory=list)
    # Offset, key, value; compaction makes holes.
    state: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    state_end: int = 0
    sent: dict[str, list[OutgoingRecord]] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)
    owners: int = 0

    def write(self, partition: int, headers: Pairs, value: bytes) -> None:
        """A client's record in the input topic."""
        lane = self.inputs[partition]
        lane.append(
            Message(HALF_TOPIC, partition, len(lane), b"key", value, tuple(headers), self.now_ms)
        )

    def append(self, key: bytes, value: bytes | None) -> None:
        self.state.append((self.state_end, key, value))
        self.state_end += 1

    def take_in(self, machine: LedgerMachine, partition: int, most: int) -> None:
        """One whole transaction of an intake."""
        begin = self.taken[partition]
        for message in self.inputs[partition][begin : begin + most]:
            entry = machine.read(message, self.now_ms)
            if isinstance(entry, InvalidCommand):
                self.dead.append(entry.reason)
            else:
                self.append(state_key(entry.id, entry.position), state_value(entry))
            self.taken[partition] += 1
        # A marker takes an offset, too.
        self.state_end += 1

    def compact(self, read_to: int) -> None:
        """Drop what a later record replaces, and deletions that every reader has passed."""
        newest = {key: offset for offset, key, _ in self.state}
        self.state = [
            (offset, key, value)
            for offset, key, value in self.state
            if newest[key] == offset and (value is not None or offset >= read_to)
        ]

    def targets(self) -> list[str]:
        """The ids that readers of the target have seen, in order."""
        return [sent_id(record) for record in self.sent.get(TARGET, ())]


def sent_id(record: OutgoingRecord) -> str:
    """The id of a record that was sent."""
    (id,) = (value for name, value in record.headers if name == ID_HEADER)
    assert id is not None
    return id.decode()


class Owner:
    """One instance that owns the state partition until a newer one comes."""

    def __init__(self, topics: Topics, machine: LedgerMachine) -> None:
        topics.owners += 1
        self.topics = topics
        self.position = 0
        self.until = topics.state_end
        self.alarms: list[tuple[str, str]] = []
        self._cache = EntryCache()
        self.state = StatePartition(machine, self._cache, topics.owners, topics.now_ms)

    def close(self) -> None:
        self._cache.close()

    def read(self, most: int) -> None:
        """Enter some of what is there."""
        new = [row for row in self.topics.state if row[0] >= self.position][:most]
        if new:
            self.state.apply((key, value) for _, key, value in new)
        self.position = new[-1][0] + 1 if new else self.topics.state_end

    @property
    def is_caught_up(self) -> bool:
        return self.position >= self.until

    def plan(self) -> PlannedTransaction:
        assert self.is_caught_up
        return self.state.plan(self.topics.now_ms, PLAN_MOST)

    def commit(self, plan: PlannedTransaction) -> None:
        """The transaction, whole."""
        for record in plan.sends:
            self.topics.sent.setdefault(record.topic, []).append(record)
        for key, value in plan.writes(self.state.writer):
            self.topics.append(key, value)
        self.topics.state_end += 1

    def done(self, plan: PlannedTransaction) -> None:
        self.alarms += self.state.committed(plan)

    def act(self) -> bool:
        """One whole step; False when there was nothing to do."""
        plan = self.plan()
        if plan:
            self.commit(plan)
            self.done(plan)
        return bool(plan)


class World:
    """Topics, a machine and the present owner."""

    def __init__(self, limits: HalfLimits = LIMITS, lanes: int = 2) -> None:
        self.machine: LedgerMachine = HalfMachine(limits)
        self.topics = Topics(inputs=tuple([] for _ in range(lanes)), taken=[0] * lanes)
        self.alarms: list[tuple[str, str]] = []
        self.owner = Owner(self.topics, self.machine)

    def say(self, kind: str, id: str, lane: int = 0, value: bytes = b"payload") -> None:
        """A client's command."""
        headers = prepare_headers(id) if kind == "prepare" else command(kind, id)
        self.topics.write(lane, headers, value)

    def settle(self) -> None:
        """Let all be done that can be done now."""
        for lane in range(len(self.topics.inputs)):
            self.topics.take_in(self.machine, lane, 1_000_000)
        while self.owner.position < self.topics.state_end or self.owner.act():
            self.owner.read(1_000_000)
        self.collect()

    def advance(self, ms: int) -> None:
        """Move time on in steps of a second, doing what falls due."""
        end_ms = self.topics.now_ms + ms
        while self.topics.now_ms < end_ms:
            self.topics.now_ms = min(end_ms, self.topics.now_ms + 1_000)
            self.settle()

    def take_over(self) -> None:
        """The owner dies, another comes."""
        self.collect()
        self.owner.close()
        self.owner = Owner(self.topics, self.machine)

    def collect(self) -> None:
        self.alarms += self.owner.alarms
        self.owner.alarms = []

    def entries(self) -> Iterator[LedgerEntry]:
        """What a fresh reader of the state topic finds, by id."""
        cache = EntryCache()
        try:
            state = StatePartition(self.machine, cache, 1 << 40, self.topics.now_ms)
            state.apply((key, value) for _, key, value in self.topics.state)
            yield from cache.all()
        finally:
            cache.close()

    def states(self) -> dict[str, str]:
        """The state of every id."""
        return {entry.id: entry.state for entry in self.entries()}

"""The outbox and its relay against a simple model, through crashes, outages and confirmations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.handlers.fake_kafka import FakeProducer, failure
from tests.handlers.manual_clock import ManualClock

from headrace.outbox.relay import Relay, RelayLimits
from headrace.store import StoreUnavailable, open_store

TOPICS = ("x", "y")
GROUPS = ("a", "b")
LIMITS = RelayLimits(batch_rows=3, confirm_within_ms=60_000, sends_max=2)


@dataclass
class Row:
    """A message as the model knows it; `waiting` is None when nobody has to confirm."""

    id: str
    topic: str
    waiting: set[str] | None
    state: str = "pending"
    sends: int = 0
    due_ms: int | None = None

    def mark_sent(self, now_ms: int) -> None:
        self.sends += 1
        if self.state == "pending":
            self.state = "sent"
            self.due_ms = None if self.waiting is None else now_ms + LIMITS.confirm_within_ms

    def confirm(self, group: str | None) -> None:
        if self.state == "confirmed":
            return
        if self.waiting and len(self.waiting) > 1 and group in self.waiting:
            self.waiting.discard(group)
        elif (
            not self.waiting
            or self.waiting == {group}
            or (group is None and len(self.waiting) == 1)
        ):
            self.state, self.due_ms, self.waiting = "confirmed", None, None


@dataclass
class Model:
    """What must be in the table and on the wire."""

    rows: list[Row] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    unmarked: list[Row] = field(default_factory=list)
    held_until_ms: dict[str, int] = field(default_factory=dict)
    pause_ms: dict[str, int] = field(default_factory=dict)

    def forget(self) -> None:
        """The relay's process is gone, and what it knew."""
        self.unmarked, self.held_until_ms, self.pause_ms = [], {}, {}

    def mark(self, now_ms: int) -> None:
        for row in self.unmarked:
            row.mark_sent(now_ms)
        self.unmarked = []

    def batch(self, now_ms: int) -> list[Row]:
        """What a step at this time hands to the producer, after it has looked for the overdue."""
        for row in self.rows:
            if row.due_ms is not None and row.due_ms <= now_ms:
                row.state = "failed" if row.sends >= LIMITS.sends_max else "pending"
                row.due_ms = None
        free = [t for t in TOPICS if self.held_until_ms.get(t, 0) <= now_ms]
        pending = [row for row in self.rows if row.state == "pending" and row.topic in free]
        return pending[: LIMITS.batch_rows]

    def answer(self, batch: list[Row], broken: set[str], refusing: set[str], now_ms: int) -> None:
        taken = [row for row in batch if row.topic not in broken | refusing]
        self.unmarked = taken
        for row in taken:
            self.held_until_ms.pop(row.topic, None)
            self.pause_ms.pop(row.topic, None)
        for row in batch:
            if row.topic in refusing:
                row.state = "failed"
        for topic in broken & {row.topic for row in batch}:
            pause_ms = self.pause_ms.get(topic, 1_000)
            self.held_until_ms[topic] = now_ms + pause_ms
            self.pause_ms[topic] = min(2 * pause_ms, 30_000)


class OutboxMachine(RuleBasedStateMachine):
    """Every rule does the same to the outbox and to the model; the two must agree."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.store = open_store("sqlite://", clock=self.clock)
        self.store.create()
        self.begin = self.store.begin
        self.producer = FakeProducer()
        self.model = Model()
        self.broken: set[str] = set()
        self.refusing: set[str] = set()
        self.relay = self.new_relay()

    def new_relay(self) -> Relay:
        # The same name, so that it need not wait for the lease of the one that died.
        return Relay(self.store, self.producer, owner="relay", limits=LIMITS)

    def teardown(self) -> None:
        self.heal()
        while any(row.state == "pending" or row.due_ms for row in self.model.rows):
            self.step()
            self.pass_time(60_000)
        assert not [row for row in self.model.rows if row.state == "pending"]
        reached = set(self.producer.ids)
        for row in self.model.rows:
            assert row.id in reached or row.sends == 0, row
            assert row.id in reached or row.state in ("failed", "confirmed"), row
        self.the_table_agrees()
        self.store.close()

    @rule(
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4),
        confirm_by=st.sampled_from([(), "any", ("a",), ("a", "b")]),
        commits=st.booleans(),
    )
    def send(self, topics: list[str], confirm_by: Any, commits: bool) -> None:
        rows = []
        try:
            with self.store.begin() as tx:
                for topic in topics:
                    id = tx.send(topic, b"", confirm_by=confirm_by)
                    awaited = set() if confirm_by == "any" else set(confirm_by)
                    rows.append(Row(id, topic, awaited if confirm_by else None))
                if not commits:
                    raise LookupError
        except LookupError:
            return
        self.model.rows += rows

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data(), group=st.sampled_from([None, *GROUPS, "nobody"]))
    def confirm(self, data: st.DataObject, group: str | None) -> None:
        row = data.draw(st.sampled_from(self.model.rows))
        self.store.outbox.confirm([(row.id, group), ("unknown", group)])
        row.confirm(group)

    @rule(ms=st.sampled_from([1_000, 7_500, 30_000, 60_000]))
    def pass_time(self, ms: int) -> None:
        self.clock.pass_ms(ms)

    @rule(topic=st.sampled_from(TOPICS), refuses=st.booleans())
    def break_topic(self, topic: str, refuses: bool) -> None:
        kind = KafkaError.MSG_SIZE_TOO_LARGE if refuses else KafkaError._MSG_TIMED_OUT
        self.producer.answers[topic] = failure(kind)
        self.refusing.discard(topic)
        self.broken.discard(topic)
        (self.refusing if refuses else self.broken).add(topic)

    @rule()
    def heal(self) -> None:
        self.producer.answers.clear()
        self.broken.clear()
        self.refusing.clear()

    @rule()
    def step(self) -> None:
        now_ms = self.clock.now_ms()
        self.model.mark(now_ms)
        self.hand_over(self.model.batch(now_ms), now_ms)
        sent = len(self.model.unmarked)
        self.model.mark(now_ms)
        assert self.relay.step() == sent

    @rule()
    def crash_before_the_mark(self) -> None:
        now_ms = self.clock.now_ms()
        self.model.mark(now_ms)
        batch = self.model.batch(now_ms)
        self.model.written += [
            row.id for row in batch if row.topic not in self.broken | self.refusing
        ]
        self.model.forget()

        def crash() -> None:
            raise SystemExit

        self.producer.on_flush = crash
        try:
            self.relay.step()
        except SystemExit:
            assert batch
        self.producer.on_flush = None
        self.relay = self.new_relay()

    @precondition(lambda self: not self.refusing)
    @rule()
    def lose_the_store_before_the_mark(self) -> None:
        now_ms = self.clock.now_ms()
        self.model.mark(now_ms)
        batch = self.model.batch(now_ms)
        self.hand_over(batch, now_ms)

        def unavailable() -> None:
            raise StoreUnavailable("gone")

        def go_away() -> None:
            self.store.begin = unavailable  # type: ignore[method-assign, assignment]

        self.producer.on_flush = go_away
        try:
            self.relay.step()
        except StoreUnavailable:
            assert self.model.unmarked or self.broken
        else:
            assert not self.model.unmarked
        self.producer.on_flush = None
        self.store.begin = self.begin  # type: ignore[method-assign]

    def hand_over(self, batch: list[Row], now_ms: int) -> None:
        self.model.answer(batch, self.broken, self.refusing, now_ms)
        self.model.written += [row.id for row in self.model.unmarked]

    @invariant()
    def the_wire_agrees(self) -> None:
        assert self.producer.ids == self.model.written

    @invariant()
    def the_table_agrees(self) -> None:
        found = [
            (row.id, row.state, row.sends, row.due_ms)
            for row in reversed(self.store.outbox.latest(limit=1_000))
        ]
        expected = [(row.id, row.state, row.sends, row.due_ms) for row in self.model.rows]
        assert found == expected


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)

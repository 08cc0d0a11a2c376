"""The delay machine and its state against a simple model, with time that a test turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.ledger.delay.machine import (
    CANCEL_KEPT_MS,
    TABLE,
    DelayMachine,
    Event,
    State,
    event_of,
)
from headrace.ledger.entries import EntryCache
from headrace.ledger.machine import CommandPosition, LedgerEntry
from headrace.ledger.records import pack_message, state_key, state_value
from headrace.ledger.state_partition import TICK_MS, StatePartition

START_MS = 1_000_000
IDS = [f"id{number}" for number in range(4)]
ENDS = {State.DELIVERED, State.DEAD}


class DelayModel(RuleBasedStateMachine):
    """One partition of the input, so that the last command of an id is the one that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.offset = 0
        self.machine = DelayMachine()
        self.state = StatePartition(self.machine, EntryCache(), 1, self.now_ms)
        # The state topic as a reader has it: keys with their values.
        self.topic: dict[bytes, bytes] = {}
        # The model: the due time and number of each id's message; those delivered.
        self.model: dict[str, tuple[int, bytes]] = {}
        self.delivered: list[bytes] = []

    @rule(id=strategies.sampled_from(IDS), ms=strategies.integers(0, 40_000))
    def schedule(self, id: str, ms: int) -> None:
        value = b"%d" % self.offset
        self.command(id, State.SCHEDULED, self.now_ms + ms, pack_message("t", None, value, ()))
        self.model[id] = (self.now_ms + ms, value)

    @rule(id=strategies.sampled_from(IDS))
    def cancel(self, id: str) -> None:
        self.command(id, State.CANCELLED, self.now_ms + CANCEL_KEPT_MS, b"")
        self.model.pop(id, None)

    @rule(ms=strategies.integers(0, 30_000))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule(ms=strategies.integers(1, 10_000))
    def set_the_clock_back(self, ms: int) -> None:
        self.now_ms -= ms

    @rule(most=strategies.integers(1, 5), is_lost=strategies.booleans())
    def deliver(self, most: int, is_lost: bool) -> None:
        plan = self.state.plan(self.now_ms, most)
        if is_lost:
            self.state.put_back(plan)
            return
        sent = [outgoing.value or b"" for outgoing in plan.sends]
        due = {value: due_ms for due_ms, value in self.model.values()}
        for value in sent:
            assert value in due, "what was cancelled or replaced was delivered"
            assert due[value] <= self.now_ms, "it was early"
        self.model = {id: told for id, told in self.model.items() if told[1] not in sent}
        self.delivered += sent
        for key, written in plan.writes(1):
            assert written is None
            self.topic.pop(key, None)
        self.state.committed(plan)

    @rule()
    def deliver_all(self) -> None:
        # Up to a tick later, as the wheel rounds up.
        self.now_ms += TICK_MS
        while self._step():
            pass
        left = [due_ms for due_ms, _ in self.model.values() if due_ms <= self.now_ms - TICK_MS]
        assert not left, "what was due was not delivered"

    @precondition(lambda self: self.topic)
    @rule(seed=strategies.randoms())
    def crash_and_take_over(self, seed: Any) -> None:
        """A new owner reads what is left in the topic."""
        self.state = StatePartition(self.machine, EntryCache(), 1 + seed.randrange(10), self.now_ms)
        self.state.apply(self.topic.items())

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        assert len(set(self.delivered)) == len(self.delivered)

    def _step(self) -> bool:
        before = len(self.delivered)
        self.deliver(100, False)
        return len(self.delivered) > before

    def command(self, id: str, kind: State, due_ms: int, body: bytes) -> None:
        place = CommandPosition(0, self.offset)
        self.offset += 1
        entry = LedgerEntry(id, kind, due_ms, self.now_ms, place, body=body)
        record = state_key(id, place), state_value(entry)
        self.topic[record[0]] = record[1]
        self.state.apply([record])


DelayModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestDelayModel = DelayModel.TestCase


def entry(kind: State, partition: int, offset: int, at_ms: int) -> LedgerEntry:
    return LedgerEntry("id", kind, 0, at_ms, CommandPosition(partition, offset))


def test_every_pair_of_known_state_and_command_has_a_row() -> None:
    commands = (Event.SCHEDULE, Event.CANCEL, Event.OLDER_SCHEDULE, Event.OLDER_CANCEL)
    for state in (State.SCHEDULED, State.CANCELLED):
        for event in commands:
            assert (state, event) in TABLE
    assert {(State.UNKNOWN, Event.SCHEDULE), (State.UNKNOWN, Event.CANCEL)} <= TABLE.keys()


def test_no_row_leaves_an_end() -> None:
    assert not {state for state, _ in TABLE} & ENDS


@pytest.mark.parametrize(("state", "event"), [row for row in TABLE if row[0] != State.UNKNOWN])
def test_the_machine_obeys_the_table(state: State, event: Event) -> None:
    machine = DelayMachine()
    known = entry(state, 0, 5, 1_000)
    if event in (Event.DUE, Event.REFUSED, Event.EXPIRED):
        known = known._replace(body=pack_message("t", b"k", b"v", ()))
        action = (
            machine.refused(known, "t", "no", 2_000)
            if event == Event.REFUSED
            else machine.act(known, 2_000)
        )
        topics = [outgoing.topic for outgoing in action.send]
        expected = {Event.DUE: ["t"], Event.REFUSED: ["headrace.delay.dlq"], Event.EXPIRED: []}
        assert topics == expected[event]
        assert action.entry is None
        return
    is_older = event in (Event.OLDER_SCHEDULE, Event.OLDER_CANCEL)
    kind = State.CANCELLED if "cancel" in event else State.SCHEDULED
    new = entry(kind, 0, 4 if is_older else 6, 1_000)
    assert event_of(known, new) == event
    folded = machine.fold(known, new)
    assert folded.entry is not None
    assert folded.entry.state == TABLE[state, event][0]
    assert {folded.entry.position, *folded.superseded} == {known.position, new.position}


def test_on_two_partitions_the_time_of_the_append_decides() -> None:
    known = entry(State.SCHEDULED, 0, 9, 1_000)
    assert event_of(known, entry(State.SCHEDULED, 1, 2, 999)) == Event.OLDER_SCHEDULE
    assert event_of(known, entry(State.SCHEDULED, 1, 2, 1_001)) == Event.SCHEDULE
    assert event_of(known, entry(State.CANCELLED, 1, 2, 1_000)) == Event.CANCEL
    cancelled = entry(State.CANCELLED, 0, 9, 1_000)
    assert event_of(cancelled, entry(State.SCHEDULED, 1, 2, 1_000)) == Event.OLDER_SCHEDULE


def test_a_schedule_that_is_older_than_a_cancel_and_comes_after_it_is_cancelled() -> None:
    machine = DelayMachine()
    commands = [
        entry(State.SCHEDULED, 0, 0, 1_000),
        entry(State.CANCELLED, 0, 1, 3_000),
        entry(State.SCHEDULED, 1, 0, 2_000),
    ]
    known: LedgerEntry | None = None
    for command in commands:
        known, _ = machine.fold(known, command)
    assert known is not None
    assert known.state == State.CANCELLED


def test_a_cancel_that_comes_first_is_remembered_for_a_day() -> None:
    machine = DelayMachine()
    state = StatePartition(machine, EntryCache(), 1, START_MS)
    early = LedgerEntry(
        "a", State.CANCELLED, START_MS + CANCEL_KEPT_MS, START_MS, CommandPosition(1, 0)
    )
    late = LedgerEntry("a", State.SCHEDULED, 0, START_MS - 1, CommandPosition(0, 0), body=b"")
    state.apply([(state_key("a", early.position), state_value(early))])
    state.apply([(state_key("a", late.position), state_value(late))])
    assert not state.plan(START_MS, 10).items
    assert state.pending == 1
    plan = state.plan(START_MS + CANCEL_KEPT_MS + TICK_MS, 10)
    assert [held.entry.state for held, _ in plan.items] == [State.CANCELLED]
    assert not list(plan.sends)
    assert {key for key, _ in plan.writes(1)} == {b"1/0/a", b"0/0/a"}

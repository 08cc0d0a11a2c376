"""The state of a state partition: plans, their failures, and the near and the far future."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.client.message import Message
from headrace.ledger import state_partition as state_module
from headrace.ledger.entries import EntryCache
from headrace.ledger.machine import (
    Action,
    CommandPosition,
    Folded,
    InvalidCommand,
    LedgerEntry,
    OutgoingRecord,
)
from headrace.ledger.records import state_key, state_value
from headrace.ledger.state_partition import (
    TICK_MS,
    PlannedTransaction,
    StatePartition,
    TargetNotReady,
)
from headrace.telemetry.alarms import AlarmName, NamedAlarm

START_MS = 1_000_000
WRITER = 7


class Simple:
    """Sends each entry's body to its kind; an entry with a count comes again."""

    name = "simple"
    stuck_alarm: AlarmName = "delay-held"

    def read(self, message: Message, now_ms: int) -> LedgerEntry | InvalidCommand:
        raise NotImplementedError

    def fold(self, known: LedgerEntry | None, new: LedgerEntry) -> Folded:
        if known is None or known.position == new.position:
            return Folded(new)
        return Folded(
            known._replace(due_ms=0, other_positions=(*known.other_positions, new.position))
        )

    def act(self, entry: LedgerEntry, now_ms: int) -> Action:
        again = (
            entry._replace(count=entry.count - 1, due_ms=now_ms + 1_000) if entry.count else None
        )
        return Action((OutgoingRecord(entry.state, None, entry.body),), again)

    def refused(self, entry: LedgerEntry, topic: str, reason: str, now_ms: int) -> Action:
        return Action(
            (OutgoingRecord("dead", None, entry.body),),
            alarm=NamedAlarm("delay-dead-letter", reason),
        )


def make() -> StatePartition:
    return StatePartition(Simple(), EntryCache(), WRITER, START_MS)


def record(entry: LedgerEntry, writer: int = 0) -> tuple[bytes, bytes]:
    return state_key(entry.id, entry.position), state_value(entry, writer)


def entries(count: int, due_ms: int = START_MS, topic: str = "t") -> list[LedgerEntry]:
    return [
        LedgerEntry(
            f"{topic}{number}", topic, due_ms, 0, CommandPosition(0, number), body=b"%d" % number
        )
        for number in range(count)
    ]


def fill(state: StatePartition, entries: Iterable[LedgerEntry]) -> None:
    state.apply([record(entry) for entry in entries])


def sent(plan: PlannedTransaction) -> list[bytes | None]:
    return [outgoing.value for outgoing in plan.sends]


def test_a_plan_takes_what_is_due_and_leaves_the_rest() -> None:
    state = make()
    fill(state, [*entries(3), *entries(2, START_MS + 5_000, "later")])
    plan = state.plan(START_MS, 10)
    assert sent(plan) == [b"0", b"1", b"2"]
    assert [value for _, value in plan.writes(WRITER)] == [None] * 3
    state.committed(plan)
    assert state.pending == 2
    assert not state.plan(START_MS + 4_999, 10)
    assert len(state.plan(START_MS + 5_000 + TICK_MS, 10).items) == 2


def test_a_plan_that_came_to_nothing_is_due_again_in_the_same_order() -> None:
    state = make()
    fill(state, entries(5))
    plan = state.plan(START_MS, 3)
    state.put_back(plan)
    assert sent(state.plan(START_MS, 10)) == [b"0", b"1", b"2", b"3", b"4"]


def test_one_bad_entry_is_found_by_halves_and_refused() -> None:
    state = make()
    fill(state, [*entries(20), *entries(1, topic="bad")])
    done: list[bytes | None] = []
    alarms: list[tuple[str, str]] = []
    rounds = 0
    while state.pending:
        rounds += 1
        plan = state.plan(START_MS, 100)
        topics = {outgoing.topic for outgoing in plan.sends}
        if "bad" in topics:
            state.isolate(plan, dict.fromkeys(range(len(plan.items)), "it is bad"))
        else:
            done += [outgoing.value for outgoing in plan.sends if outgoing.topic == "t"]
            alarms += state.committed(plan)
    assert len(done) == 20
    assert alarms == [("delay-dead-letter", "it is bad")]
    assert rounds < 14


def test_one_that_is_suspected_alone_is_refused_and_the_others_are_due() -> None:
    state = make()
    fill(state, entries(4))
    state.isolate(state.plan(START_MS, 10), {2: "too large"})
    plan = state.plan(START_MS, 10)
    assert [(it.topic, it.value) for it in plan.sends] == [
        ("dead", b"2"), ("t", b"0"), ("t", b"1"), ("t", b"3")
    ]  # fmt: skip
    assert plan.dead_letters == {0}


def test_what_is_tried_apart_and_what_is_due_take_turns() -> None:
    state = make()
    fill(state, entries(4, topic="bad"))
    state.isolate(state.plan(START_MS, 10), dict.fromkeys(range(4), "too large"))
    fill(state, entries(2))
    topics = []
    for _ in range(6):
        plan = state.plan(START_MS + TICK_MS, 1)
        topics.append("".join({outgoing.topic for outgoing in plan.sends}))
        if topics[-1] == "bad":
            state.isolate(plan, dict.fromkeys(range(len(plan.items)), "too large"))
        else:
            state.committed(plan)
    assert topics[:4] == ["bad", "t", "bad", "t"]


def test_a_topic_that_is_never_there_is_refused_and_one_that_is_not_there_yet_waited_for() -> None:
    state = make()
    fill(state, [*entries(1), *entries(1, topic="bad"), *entries(1, topic="slow")])

    def verdict(outgoing: OutgoingRecord) -> str | None:
        if outgoing.topic == "slow":
            raise TargetNotReady(outgoing.topic)
        return "none" if outgoing.topic == "bad" else None

    plan = state.plan(START_MS, 10, verdict)
    assert [outgoing.topic for outgoing in plan.sends] == ["t", "dead"]
    state.committed(plan)
    assert not state.plan(START_MS, 10, verdict)
    state.retry_waiting(lambda topic: topic == "slow")
    assert not state.plan(START_MS, 10)
    state.retry_waiting(lambda _: False)
    assert [outgoing.topic for outgoing in state.plan(START_MS, 10).sends] == ["slow"]


def test_a_refused_entry_waits_while_the_dead_letters_take_nothing() -> None:
    state = make()
    fill(state, [*entries(1, topic="bad"), *entries(1)])

    def verdict(outgoing: OutgoingRecord) -> str | None:
        return "denied" if outgoing.topic in ("bad", "dead") else None

    plan = state.plan(START_MS, 10, verdict)
    assert [outgoing.topic for outgoing in plan.sends] == ["t"]
    state.committed(plan)
    assert not state.plan(START_MS, 10, verdict)
    state.retry_waiting(lambda _: False)
    assert [it.topic for it in state.plan(START_MS, 10, lambda _: None).sends] == ["bad"]


def test_an_odd_entry_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make()
    fill(state, entries(3))

    def act(_: Simple, entry: LedgerEntry, now_ms: int) -> Action:
        if entry.id == "t1":
            raise ValueError("another version's")
        return Action((OutgoingRecord(entry.state, None, entry.body),))

    monkeypatch.setattr(Simple, "act", act)
    plan = state.plan(START_MS, 10)
    assert sent(plan) == [b"0", b"2"]
    state.committed(plan)
    assert not state.plan(START_MS, 10)
    assert state.pending == 1


def test_records_of_one_id_end_together() -> None:
    state = make()
    fill(state, entries(1, START_MS + 60_000))
    other = LedgerEntry("t0", "t", 0, 0, CommandPosition(3, 9))
    state.apply([record(other)])
    plan = state.plan(START_MS, 10)
    assert sent(plan) == [b"0"]
    assert dict(plan.writes(WRITER)) == {b"0/0/t0": None, b"3/9/t0": None}


def test_an_entry_that_is_written_anew_comes_again_and_its_echo_changes_nothing() -> None:
    state = make()
    first = entries(1)[0]._replace(count=1)
    fill(state, [first])
    plan = state.plan(START_MS, 10)
    [(key, value)] = plan.writes(WRITER)
    assert value is not None
    state.committed(plan)
    state.apply([(key, value)])
    assert not state.plan(START_MS + 900, 10)
    assert sent(state.plan(START_MS + 1_000 + TICK_MS, 10)) == [b"0"]


def test_a_deletion_takes_back_what_it_names_and_nothing_else() -> None:
    state = make()
    fill(state, entries(2))
    state.apply([(b"0/0/t0", None), (b"5/5/t1", None), (b"no key at all", None)])
    assert sent(state.plan(START_MS, 10)) == [b"1"]


def test_a_clock_that_is_set_back_makes_nothing_early_or_lost() -> None:
    state = make()
    fill(state, entries(1, START_MS + 8_000))
    assert not state.plan(START_MS + 7_000, 10)
    assert not state.plan(START_MS - 50_000, 10)
    fill(state, entries(1, START_MS - 49_000, "soon"))
    assert not state.plan(START_MS - 49_500, 10)
    plan = state.plan(START_MS - 49_000 + TICK_MS, 10)
    assert [outgoing.topic for outgoing in plan.sends] == ["soon"]
    state.committed(plan)
    assert sent(state.plan(START_MS + 8_000 + TICK_MS, 10)) == [b"0"]


def test_a_crowd_that_is_due_at_once_passes_the_wheel_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_module, "NEAR_MAX", 40)
    state = make()
    fill(state, entries(500, START_MS + 100))
    seen: list[bytes | None] = []
    for _ in range(200):
        plan = state.plan(START_MS + 100 + TICK_MS, 25)
        seen += sent(plan)
        state.committed(plan)
        if not state.pending:
            break
    assert seen == [b"%d" % number for number in range(500)]


def test_a_plan_has_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "TRANSACTION_BYTES_MAX", 1_000)
    monkeypatch.setattr(state_module, "READ_ENTRIES", 2)
    state = make()
    fill(state, [entry._replace(body=bytes(400)) for entry in entries(10)])
    assert len(state.plan(START_MS, 100).items) == 4

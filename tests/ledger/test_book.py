"""The book of a state partition: plans, their failures, and the near and the far future."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.client.message import Message
from headrace.ledger import book as book_module
from headrace.ledger.book import TICK_MS, Book, Plan, Wait
from headrace.ledger.cache import Cache
from headrace.ledger.machine import Action, Entry, Folded, Outgoing, Place, Refusal
from headrace.ledger.records import state_key, state_value
from headrace.telemetry.alarms import AlarmName, NamedAlarm

START_MS = 1_000_000
WRITER = 7


class Simple:
    """Sends each entry's body to its kind; an entry with a count comes again."""

    name = "simple"
    held_alarm: AlarmName = "delay-held"

    def read(self, message: Message, now_ms: int) -> Entry | Refusal:
        raise NotImplementedError

    def fold(self, known: Entry | None, new: Entry) -> Folded:
        if known is None or known.place == new.place:
            return Folded(new)
        return Folded(known._replace(due_ms=0, also=(*known.also, new.place)))

    def act(self, entry: Entry, now_ms: int) -> Action:
        again = (
            entry._replace(count=entry.count - 1, due_ms=now_ms + 1_000) if entry.count else None
        )
        return Action((Outgoing(entry.kind, None, entry.body),), again)

    def refused(self, entry: Entry, topic: str, reason: str, now_ms: int) -> Action:
        return Action(
            (Outgoing("dead", None, entry.body),), alarm=NamedAlarm("delay-dead-letter", reason)
        )


def make() -> Book:
    return Book(Simple(), Cache(), WRITER, START_MS)


def record(entry: Entry, writer: int = 0) -> tuple[bytes, bytes]:
    return state_key(entry.id, entry.place), state_value(entry, writer)


def entries(count: int, due_ms: int = START_MS, topic: str = "t") -> list[Entry]:
    return [
        Entry(f"{topic}{number}", topic, due_ms, 0, Place(0, number), body=b"%d" % number)
        for number in range(count)
    ]


def fill(book: Book, entries: Iterable[Entry]) -> None:
    book.take([record(entry) for entry in entries])


def sent(plan: Plan) -> list[bytes | None]:
    return [outgoing.value for outgoing in plan.sends]


def test_a_plan_takes_what_is_due_and_leaves_the_rest() -> None:
    book = make()
    fill(book, [*entries(3), *entries(2, START_MS + 5_000, "later")])
    plan = book.plan(START_MS, 10)
    assert sent(plan) == [b"0", b"1", b"2"]
    assert [value for _, value in plan.writes(WRITER)] == [None] * 3
    book.done(plan)
    assert book.pending == 2
    assert not book.plan(START_MS + 4_999, 10)
    assert len(book.plan(START_MS + 5_000 + TICK_MS, 10).items) == 2


def test_a_plan_that_came_to_nothing_is_due_again_in_the_same_order() -> None:
    book = make()
    fill(book, entries(5))
    plan = book.plan(START_MS, 3)
    book.put_back(plan)
    assert sent(book.plan(START_MS, 10)) == [b"0", b"1", b"2", b"3", b"4"]


def test_one_bad_entry_is_found_by_halves_and_refused() -> None:
    book = make()
    fill(book, [*entries(20), *entries(1, topic="bad")])
    done: list[bytes | None] = []
    alarms: list[tuple[str, str]] = []
    rounds = 0
    while book.pending:
        rounds += 1
        plan = book.plan(START_MS, 100)
        topics = {outgoing.topic for outgoing in plan.sends}
        if "bad" in topics:
            book.suspect(plan, dict.fromkeys(range(len(plan.items)), "it is bad"))
        else:
            done += [outgoing.value for outgoing in plan.sends if outgoing.topic == "t"]
            alarms += book.done(plan)
    assert len(done) == 20
    assert alarms == [("delay-dead-letter", "it is bad")]
    assert rounds < 14


def test_one_that_is_suspected_alone_is_refused_and_the_others_are_due() -> None:
    book = make()
    fill(book, entries(4))
    book.suspect(book.plan(START_MS, 10), {2: "too large"})
    plan = book.plan(START_MS, 10)
    assert [(it.topic, it.value) for it in plan.sends] == [
        ("dead", b"2"), ("t", b"0"), ("t", b"1"), ("t", b"3")
    ]  # fmt: skip
    assert plan.letters == {0}


def test_what_is_tried_apart_and_what_is_due_take_turns() -> None:
    book = make()
    fill(book, entries(4, topic="bad"))
    book.suspect(book.plan(START_MS, 10), dict.fromkeys(range(4), "too large"))
    fill(book, entries(2))
    topics = []
    for _ in range(6):
        plan = book.plan(START_MS + TICK_MS, 1)
        topics.append("".join({outgoing.topic for outgoing in plan.sends}))
        if topics[-1] == "bad":
            book.suspect(plan, dict.fromkeys(range(len(plan.items)), "too large"))
        else:
            book.done(plan)
    assert topics[:4] == ["bad", "t", "bad", "t"]


def test_a_topic_that_is_never_there_is_refused_and_one_that_is_not_there_yet_waited_for() -> None:
    book = make()
    fill(book, [*entries(1), *entries(1, topic="bad"), *entries(1, topic="slow")])

    def verdict(outgoing: Outgoing) -> str | None:
        if outgoing.topic == "slow":
            raise Wait(outgoing.topic)
        return "none" if outgoing.topic == "bad" else None

    plan = book.plan(START_MS, 10, verdict)
    assert [outgoing.topic for outgoing in plan.sends] == ["t", "dead"]
    book.done(plan)
    assert not book.plan(START_MS, 10, verdict)
    book.look_again(lambda topic: topic == "slow")
    assert not book.plan(START_MS, 10)
    book.look_again(lambda _: False)
    assert [outgoing.topic for outgoing in book.plan(START_MS, 10).sends] == ["slow"]


def test_a_refused_entry_waits_while_the_dead_letters_take_nothing() -> None:
    book = make()
    fill(book, [*entries(1, topic="bad"), *entries(1)])

    def verdict(outgoing: Outgoing) -> str | None:
        return "denied" if outgoing.topic in ("bad", "dead") else None

    plan = book.plan(START_MS, 10, verdict)
    assert [outgoing.topic for outgoing in plan.sends] == ["t"]
    book.done(plan)
    assert not book.plan(START_MS, 10, verdict)
    book.look_again(lambda _: False)
    assert [it.topic for it in book.plan(START_MS, 10, lambda _: None).sends] == ["bad"]


def test_an_odd_entry_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    book = make()
    fill(book, entries(3))

    def act(_: Simple, entry: Entry, now_ms: int) -> Action:
        if entry.id == "t1":
            raise ValueError("another version's")
        return Action((Outgoing(entry.kind, None, entry.body),))

    monkeypatch.setattr(Simple, "act", act)
    plan = book.plan(START_MS, 10)
    assert sent(plan) == [b"0", b"2"]
    book.done(plan)
    assert not book.plan(START_MS, 10)
    assert book.pending == 1


def test_records_of_one_id_end_together() -> None:
    book = make()
    fill(book, entries(1, START_MS + 60_000))
    other = Entry("t0", "t", 0, 0, Place(3, 9))
    book.take([record(other)])
    plan = book.plan(START_MS, 10)
    assert sent(plan) == [b"0"]
    assert dict(plan.writes(WRITER)) == {b"0/0/t0": None, b"3/9/t0": None}


def test_an_entry_that_is_written_anew_comes_again_and_its_echo_changes_nothing() -> None:
    book = make()
    first = entries(1)[0]._replace(count=1)
    fill(book, [first])
    plan = book.plan(START_MS, 10)
    [(key, value)] = plan.writes(WRITER)
    assert value is not None
    book.done(plan)
    book.take([(key, value)])
    assert not book.plan(START_MS + 900, 10)
    assert sent(book.plan(START_MS + 1_000 + TICK_MS, 10)) == [b"0"]


def test_a_deletion_takes_back_what_it_names_and_nothing_else() -> None:
    book = make()
    fill(book, entries(2))
    book.take([(b"0/0/t0", None), (b"5/5/t1", None), (b"no key at all", None)])
    assert sent(book.plan(START_MS, 10)) == [b"1"]


def test_a_clock_that_is_set_back_makes_nothing_early_or_lost() -> None:
    book = make()
    fill(book, entries(1, START_MS + 8_000))
    assert not book.plan(START_MS + 7_000, 10)
    assert not book.plan(START_MS - 50_000, 10)
    fill(book, entries(1, START_MS - 49_000, "soon"))
    assert not book.plan(START_MS - 49_500, 10)
    plan = book.plan(START_MS - 49_000 + TICK_MS, 10)
    assert [outgoing.topic for outgoing in plan.sends] == ["soon"]
    book.done(plan)
    assert sent(book.plan(START_MS + 8_000 + TICK_MS, 10)) == [b"0"]


def test_a_crowd_that_is_due_at_once_passes_the_wheel_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(book_module, "NEAR_MAX", 40)
    book = make()
    fill(book, entries(500, START_MS + 100))
    seen: list[bytes | None] = []
    for _ in range(200):
        plan = book.plan(START_MS + 100 + TICK_MS, 25)
        seen += sent(plan)
        book.done(plan)
        if not book.pending:
            break
    assert seen == [b"%d" % number for number in range(500)]


def test_a_plan_has_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "BYTES_MAX", 1_000)
    monkeypatch.setattr(book_module, "CHUNK", 2)
    book = make()
    fill(book, [entry._replace(body=bytes(400)) for entry in entries(10)])
    assert len(book.plan(START_MS, 100).items) == 4

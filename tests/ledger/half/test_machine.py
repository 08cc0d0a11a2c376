"""What becomes of half messages, step by step, with the real state partition and virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ledger.half.world import GROUP, TARGET, World, command, prepare_headers, sent_id

from headrace.ledger.half.commands import CHECK_PREFIX, HALF_TOPIC, Prepared, check_topic
from headrace.ledger.half.machine import Decided
from headrace.ledger.half.states import TABLE, Event, State

QUESTIONS = CHECK_PREFIX + GROUP
DAY_MS = 86_400_000


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.owner.close()


def names(world: World) -> list[str]:
    return [name for name, _ in world.alarms]


def test_every_state_knows_every_command_and_its_time() -> None:
    for state in State:
        for event in (Event.PREPARE, Event.COMMIT, Event.ROLLBACK):
            assert (state, event) in TABLE
        assert ((state, Event.DUE) in TABLE) == (state is not State.UNKNOWN)


def test_no_way_leads_from_one_decision_to_the_other() -> None:
    sides = {
        "commit": {State.EARLY_COMMIT, State.COMMITTING, State.COMMITTED},
        "rollback": {State.EARLY_ROLLBACK, State.ROLLING_BACK, State.ROLLED_BACK},
    }
    for side, other in (("commit", "rollback"), ("rollback", "commit")):
        assert not [
            row for row in TABLE.items() if row[0][0] in sides[side] and row[1][0] in sides[other]
        ]


def test_a_prepared_message_is_visible_to_nobody(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    assert world.topics.targets() == []
    assert world.states() == {"a": State.WAITING}


def test_commit_delivers_it_once_as_it_was_sent(world: World) -> None:
    headers = [*prepare_headers("a"), ("color", b"red"), ("none", None)]
    world.topics.write(0, headers, b"payload")
    world.say("commit", "a")
    world.settle()
    (record,) = world.topics.sent[TARGET]
    assert (record.key, record.value) == (b"key", b"payload")
    assert list(record.headers) == [("color", b"red"), ("none", None), ("headrace-id", b"a")]
    assert world.states() == {"a": State.COMMITTED}


def test_rollback_delivers_nothing_ever(world: World) -> None:
    world.say("prepare", "a")
    world.say("rollback", "a")
    world.advance(60_000)
    assert world.topics.sent == {}
    assert world.states() == {"a": State.ROLLED_BACK}


@pytest.mark.parametrize(("decision", "seen"), [("commit", ["a"]), ("rollback", [])])
def test_a_decision_may_come_before_its_prepare(
    world: World, decision: str, seen: list[str]
) -> None:
    world.say(decision, "a", lane=0)
    world.settle()
    world.advance(3_600_000)
    world.say("prepare", "a", lane=1)
    world.settle()
    assert world.topics.targets() == seen
    assert world.alarms == []


def test_an_early_commit_without_prepare_is_forgotten_after_a_day_with_an_alarm(
    world: World,
) -> None:
    world.say("commit", "a")
    world.say("rollback", "b")
    world.settle()
    world.topics.now_ms += DAY_MS
    world.settle()
    assert world.states() == {}
    assert names(world) == ["half-unprepared"]


def test_checks_come_after_6_s_then_every_30_s_then_it_is_parked(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    begin_ms = world.topics.now_ms
    asked_ms: list[int] = []
    while world.states()["a"] == State.WAITING:
        world.advance(1_000)
        if len(world.topics.sent.get(QUESTIONS, [])) > len(asked_ms):
            asked_ms.append(world.topics.now_ms - begin_ms)
    assert asked_ms == [6_000, 36_000, 66_000]
    assert world.topics.now_ms - begin_ms == 96_000
    assert names(world) == ["half-parked"]
    assert world.topics.targets() == []


def test_a_question_has_the_message_and_says_what_it_is_about(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    world.advance(6_000)
    (question,) = world.topics.sent[QUESTIONS]
    assert question.needed_topic
    assert (question.key, question.value) == (b"key", b"payload")
    assert dict(question.headers) == {
        "headrace-id": b"a",
        "headrace-target": TARGET.encode(),
        "headrace-group": GROUP.encode(),
        "headrace-check": b"1",
        "headrace-prepared-at": b"1700000000000",
    }


def test_a_sender_may_ask_for_more_time(world: World) -> None:
    world.topics.write(0, prepare_headers("a", check_after="2m"), b"")
    world.settle()
    world.advance(119_000)
    assert QUESTIONS not in world.topics.sent
    world.advance(1_000)
    assert len(world.topics.sent[QUESTIONS]) == 1


def test_a_decided_one_is_not_asked_about(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    world.advance(5_000)
    world.say("commit", "a")
    world.advance(120_000)
    assert list(world.topics.sent) == [TARGET]


@pytest.mark.parametrize(("decision", "seen"), [("commit", ["a"]), ("rollback", [])])
def test_a_parked_one_waits_for_ever_and_is_decided_by_a_person(
    world: World, decision: str, seen: list[str]
) -> None:
    world.say("prepare", "a")
    world.settle()
    world.advance(96_000)
    world.topics.now_ms += 400 * DAY_MS
    world.settle()
    assert world.states() == {"a": State.PARKED}
    assert names(world) == ["half-parked", "half-parked"]
    world.take_over()
    world.say(decision, "a")
    world.settle()
    assert world.topics.targets() == seen


def test_repeats_change_nothing(world: World) -> None:
    for kind in ("prepare", "prepare", "commit", "commit", "prepare", "commit"):
        world.say(kind, "a", lane=len(kind) % 2)
        world.settle()
    world.advance(60_000)
    assert world.topics.targets() == ["a"]
    assert world.alarms == []


@pytest.mark.parametrize("order", [("commit", "rollback"), ("rollback", "commit")])
@pytest.mark.parametrize("prepared", ["first", "between", "last"])
def test_the_first_decision_wins_and_the_second_is_an_alarm(
    world: World, order: tuple[str, str], prepared: str
) -> None:
    steps = list(order)
    steps.insert({"first": 0, "between": 1, "last": 2}[prepared], "prepare")
    for kind in steps:
        world.say(kind, "a")
        world.settle()
    world.advance(60_000)
    assert world.topics.targets() == (["a"] if order[0] == "commit" else [])
    assert names(world) == ["half-contradiction"]


def test_contradictions_at_once_are_one_decision_and_one_alarm(world: World) -> None:
    for kind in ("prepare", "commit", "rollback"):
        world.say(kind, "a")
    world.settle()
    assert world.topics.targets() == ["a"]
    assert names(world) == ["half-contradiction"]


def test_the_memory_of_a_decision_ends_after_a_day(world: World) -> None:
    world.say("prepare", "a")
    world.say("commit", "a")
    world.settle()
    world.topics.now_ms += DAY_MS
    world.settle()
    assert world.states() == {}
    world.topics.compact(world.topics.state_end)
    assert world.topics.state == []


def test_a_decision_that_the_last_owner_had_not_read_is_not_lost(world: World) -> None:
    """It lies in the state topic before the record of the check that was being written."""
    world.say("prepare", "a")
    world.settle()
    world.topics.now_ms += 6_000
    plan = world.owner.plan()
    world.say("commit", "a")
    world.topics.take_in(world.machine, 0, 10)
    world.owner.commit(plan)
    world.take_over()
    world.settle()
    assert world.topics.targets() == ["a"]
    world.take_over()
    world.settle()
    assert world.topics.targets() == ["a"]


def test_a_contradiction_that_the_last_owner_had_not_read_is_an_alarm(world: World) -> None:
    world.say("prepare", "a")
    world.say("commit", "a")
    world.topics.take_in(world.machine, 0, 10)
    world.owner.read(10)
    plan = world.owner.plan()
    world.say("rollback", "a")
    world.topics.take_in(world.machine, 0, 10)
    world.owner.commit(plan)
    world.topics.compact(0)
    world.take_over()
    world.settle()
    assert world.topics.targets() == ["a"]
    assert names(world) == ["half-contradiction"]


def test_a_delayed_one_goes_to_the_delay_service_when_it_is_committed(world: World) -> None:
    world.topics.write(0, prepare_headers("a", delay="15m", cancel="a"), b"payload")
    world.topics.write(0, prepare_headers("b", deliver_at="1800000000000"), b"payload")
    world.say("commit", "a")
    world.say("commit", "b")
    world.settle()
    by_id = {
        sent_id(record): dict(record.headers) for record in world.topics.sent["headrace.delay"]
    }
    assert by_id["a"]["headrace-target"] == by_id["b"]["headrace-target"] == TARGET.encode()
    assert by_id["a"]["headrace-delay"] == b"15m"
    assert "headrace-cancel" not in by_id["a"]
    assert by_id["b"]["headrace-deliver-at"] == b"1800000000000"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], "headrace-half is ''"),
        (command("perhaps", "a"), "headrace-half is 'perhaps'"),
        (command("commit", ""), "an id has 1 to 1024 bytes"),
        (command("prepare", "a", group=GROUP), "headrace-target is missing"),
        (command("prepare", "a", target="a b", group=GROUP), "is not a valid topic name"),
        (command("prepare", "a", target="headrace.half", group=GROUP), "is an internal topic"),
        (command("prepare", "a", target="headrace.half.x", group=GROUP), "is an internal topic"),
        (command("prepare", "a", target="__consumer_offsets", group=GROUP), "is an internal topic"),
        (command("prepare", "a", target=TARGET), "the producer group"),
        (command("prepare", "a", target=TARGET, group="a b"), "the producer group"),
        (command("prepare", "a", target=TARGET, group="x" * 230), "the producer group"),
        (prepare_headers("a", check_after="soon"), "headrace-check-after: 'soon' is not"),
        (prepare_headers("a", check_after="31d"), "the limit is 30 days"),
        (prepare_headers("a", delay="soon"), "headrace-delay: 'soon' is not"),
        (prepare_headers("a", deliver_at="x"), "headrace-deliver-at 'x' is not a time"),
        (prepare_headers("a", delay="1s", deliver_at="1"), "exactly one of"),
    ],
)
def test_what_says_nothing_is_a_dead_letter_with_the_reason(
    world: World, headers: list[tuple[str, bytes | None]], reason: str
) -> None:
    world.topics.write(0, headers, b"payload")
    world.settle()
    assert [reason in dead for dead in world.topics.dead] == [True]
    assert world.states() == {}


def test_the_longest_group_has_a_topic_that_can_exist() -> None:
    assert len(check_topic("x" * 229).name) == 249


def test_a_target_that_refuses_gets_a_dead_letter_and_the_memory_says_why(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    world.say("commit", "a")
    world.topics.take_in(world.machine, 0, 10)
    world.owner.read(10)
    plan = world.owner.plan()
    world.owner.state.isolate(plan, {0: "too large"})
    world.settle()
    assert world.topics.targets() == []
    (letter,) = world.topics.sent[f"{HALF_TOPIC}.dlq"]
    headers = dict(letter.headers)
    assert headers["headrace-target"] == TARGET.encode()
    assert headers["headrace-error"] == b"orders refuses it: too large"
    assert headers["headrace-source"] == b"headrace.half/0/0"
    assert (letter.key, letter.value) == (b"key", b"payload")
    assert names(world) == ["half-undeliverable"]
    (entry,) = world.entries()
    assert Decided.unpack(entry.body) == Decided(TARGET, GROUP, "too large")


def test_a_check_that_nobody_takes_counts_and_alarms(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    world.topics.now_ms += 6_000
    world.owner.state.isolate(world.owner.plan(), {0: "not authorised"})
    world.settle()
    assert QUESTIONS not in world.topics.sent
    assert names(world) == ["half-check-refused"]
    (entry,) = world.entries()
    assert (entry.state, entry.count) == (State.WAITING, 1)


def test_a_commit_is_delivered_although_the_check_before_it_was_refused(world: World) -> None:
    world.say("prepare", "a")
    world.settle()
    world.topics.now_ms += 6_000
    world.owner.state.isolate(world.owner.plan(), {0: "not authorised"})
    world.say("commit", "a")
    world.topics.take_in(world.machine, 0, 10)
    world.owner.read(10)
    world.settle()
    assert world.topics.targets() == ["a"]


@pytest.mark.parametrize(
    "prepared",
    [
        Prepared("t", "g", None, None),
        Prepared("t", "g", b"", b"", (("a", None), ("a", b"\xff"), ("", b""))),
        Prepared("t", "g", b"k", b"v", (), ("headrace-delay", "15m")),
    ],
)
def test_a_message_comes_back_from_the_state_topic_as_it_was(prepared: Prepared) -> None:
    assert Prepared.unpack(prepared.pack()) == prepared

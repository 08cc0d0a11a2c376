"""What every outbox must do, whatever database is behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from tests.handlers.endings import ends_with
from tests.handlers.manual_clock import ManualClock

from headrace.store import Store, open_store
from headrace.store.outbox import OutboxRow, Overdue

FIVE_MINUTES_MS = 300_000
MEGABYTE = 1_000_000


@dataclass
class Receipt:
    order: int


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


def send(store: Store, *confirm_by: str, topic: str = "receipts", value: object = b"v") -> str:
    with store.begin() as tx:
        return tx.send(topic, value, confirm_by=confirm_by)


def send_any(store: Store) -> str:
    with store.begin() as tx:
        return tx.send("receipts", b"v", confirm_by="any")


def relay(store: Store) -> list[str]:
    """Do as the relay does with what is pending: the ids."""
    messages = store.outbox.pending(100, MEGABYTE)
    with store.begin() as tx:
        seqs = [message.seq for message in messages]
        store.outbox.mark_sent(tx, seqs, tx.now_ms + FIVE_MINUTES_MS)
    return [message.id for message in messages]


def row(store: Store, id: str) -> OutboxRow:
    found = store.outbox.find(id)
    assert found is not None
    return found


def state(store: Store, id: str) -> str:
    return row(store, id).state


def test_a_message_is_kept_whole(store: Store, clock: ManualClock) -> None:
    headers = {"text": "ü", "bytes": b"\xff\x00", "none": None}
    with store.begin() as tx:
        id = tx.send("receipts", Receipt(7), key="k\0", headers=headers, confirm_by=["a", "b"])
        tombstone = tx.send("receipts", None)
    found = row(store, id)
    assert found == OutboxRow(
        id=id,
        topic="receipts",
        key=b"k\0",
        value=b'{"order":7}',
        headers=[("text", "ü".encode()), ("bytes", b"\xff\x00"), ("none", None)],
        state="pending",
        confirm_by=["a", "b"],
        waiting=["a", "b"],
        created_ms=clock.now_ms(),
        sends=0,
        sent_ms=None,
        due_ms=None,
        done_ms=None,
        error=None,
    )
    assert row(store, tombstone).value is None
    assert row(store, tombstone).waiting is None


def test_the_same_id_is_sent_once(store: Store) -> None:
    with store.begin() as tx:
        for value in (b"1", b"2"):
            assert tx.send("receipts", value, id="order-7") == "order-7"
    with store.begin() as tx:
        tx.send("receipts", b"3", id="order-7")
    assert [found.value for found in store.outbox.latest()] == [b"1"]


@pytest.mark.parametrize(
    "wrong",
    [{"topic": ""}, {"id": ""}, {"id": "x" * 300}, {"id": "\0"}, {"confirm_by": "billing"}],
)
def test_what_could_never_be_sent_is_refused_at_once(store: Store, wrong: dict[str, Any]) -> None:
    message: dict[str, Any] = {"topic": "receipts", "value": b"", **wrong}
    with ends_with(ValueError), store.begin() as tx:
        tx.send(**message)
    with ends_with(TypeError), store.begin() as tx:
        tx.send("receipts", object())
    assert store.outbox.latest() == []


def test_pending_messages_come_in_the_order_of_sending(store: Store) -> None:
    ids = [send(store) for _ in range(3)]
    with store.begin() as tx:
        ids += [tx.send("receipts", str(number).encode()) for number in range(3)]
    assert [message.id for message in store.outbox.pending(5, MEGABYTE)] == ids[:5]
    assert relay(store) == ids
    assert relay(store) == []


def test_pending_messages_are_bounded_in_bytes_but_never_none(store: Store) -> None:
    ids = [send(store, value=b"v" * size) for size in (600, 300, 200)]
    assert [message.id for message in store.outbox.pending(9, 950)] == ids[:2]
    assert [message.id for message in store.outbox.pending(9, 1)] == ids[:1]


def test_topics_can_be_left_out(store: Store) -> None:
    send(store, topic="off")
    on = send(store, topic="on")
    assert [message.id for message in store.outbox.pending(9, MEGABYTE, {"off", "x"})] == [on]


def test_a_message_that_nobody_confirms_is_done_when_sent(store: Store, clock: ManualClock) -> None:
    id = send(store)
    relay(store)
    found = row(store, id)
    assert (found.state, found.sends, found.due_ms) == ("sent", 1, None)
    assert found.done_ms == found.sent_ms == clock.now_ms()


def test_confirmed_by_all_groups_is_confirmed(store: Store, clock: ManualClock) -> None:
    id = send(store, "a", "b")
    relay(store)
    assert row(store, id).due_ms == clock.now_ms() + FIVE_MINUTES_MS
    assert store.outbox.confirm([(id, "a"), (id, "a")]) == 0
    assert row(store, id).waiting == ["b"]
    # Nobody knows for which of two groups this stands, and one more was never asked.
    assert store.outbox.confirm([("unknown", "b"), (id, "c")]) == 0
    assert store.outbox.confirm([(id, "b")]) == 1
    found = row(store, id)
    assert (found.state, found.due_ms, found.done_ms) == ("confirmed", None, clock.now_ms())
    assert store.outbox.confirm([(id, "b")]) == 0


def test_whoever_comes_first_confirms_what_any_may(store: Store) -> None:
    ids = [send_any(store), send_any(store)]
    relay(store)
    assert store.outbox.confirm([(ids[0], "somebody"), (ids[1], None)]) == 2


def test_a_confirmation_without_a_group_counts_where_there_is_no_doubt(store: Store) -> None:
    one, two = send(store, "a"), send(store, "a", "b")
    relay(store)
    assert store.outbox.confirm([(one, None), (two, None)]) == 1
    assert row(store, two).waiting == ["a", "b"]


def test_a_confirmation_may_come_before_the_mark(store: Store) -> None:
    id = send(store, "a")
    messages = store.outbox.pending(9, MEGABYTE)
    assert store.outbox.confirm([(id, "a")]) == 1
    with store.begin() as tx:
        store.outbox.mark_sent(tx, [message.seq for message in messages], tx.now_ms + 1)
    found = row(store, id)
    assert (found.state, found.sends, found.due_ms) == ("confirmed", 1, None)


def test_what_is_overdue_is_sent_again_and_then_given_up(store: Store, clock: ManualClock) -> None:
    id, confirmed = send(store, "a", "b"), send(store, "a")
    for _ in range(2):
        assert relay(store)[:1] == [id]
        store.outbox.confirm([(confirmed, "a"), (id, "a")])
        assert store.outbox.next_due_ms() == clock.now_ms() + FIVE_MINUTES_MS
        clock.pass_ms(FIVE_MINUTES_MS - 1)
        with store.begin() as tx:
            assert store.outbox.find_overdue(tx, sends_max=2, limit=10) == (0, [])
        clock.pass_ms(1)
        with store.begin() as tx:
            overdue = store.outbox.find_overdue(tx, sends_max=2, limit=10)
    assert (overdue.again, overdue.failed) == (0, [id])
    found = row(store, id)
    assert (found.state, found.sends, found.waiting) == ("failed", 2, ["b"])
    assert found.error == "not confirmed after 2 sends"
    assert store.outbox.failed_count() == 1
    assert store.outbox.next_due_ms() is None
    # Late, but good news all the same.
    assert store.outbox.confirm([(id, "b")]) == 1
    assert (state(store, id), row(store, id).error) == ("confirmed", None)


@pytest.mark.parametrize("sends_max", [10, 1])
def test_a_confirmation_that_is_just_being_committed_is_not_overwritten(
    new_database: Callable[[str], str], clock: ManualClock, sends_max: int
) -> None:
    # In SQLite writers follow one another, so the question does not arise.
    with closing(open_store(new_database("postgres"), clock=clock)) as store:
        store.create()
        id = send(store, "a")
        relay(store)
        clock.pass_ms(FIVE_MINUTES_MS)

        def overdue() -> Overdue:
            with store.begin() as tx:
                return store.outbox.find_overdue(tx, sends_max, 10)

        with ThreadPoolExecutor(1) as other:
            with store.begin() as tx:
                tx.execute("UPDATE headrace_outbox SET state = 'confirmed', due_ms = NULL")
                looking = other.submit(overdue)
                while not is_waited_for(store):
                    assert not looking.done()
            assert looking.result() == (0, [])
        assert state(store, id) == "confirmed"


def test_what_a_person_just_has_sent_again_is_not_cleaned_away(
    new_database: Callable[[str], str], clock: ManualClock
) -> None:
    with closing(open_store(new_database("postgres"), clock=clock)) as store:
        store.create()
        id = send(store)
        relay(store)
        with ThreadPoolExecutor(1) as other:
            with store.begin() as tx:
                tx.execute("UPDATE headrace_outbox SET state = 'pending', done_ms = NULL")
                cleaning = other.submit(store.outbox.clean, clock.now_ms() + 1)
                while not is_waited_for(store):
                    assert not cleaning.done()
            assert cleaning.result() == 0
        assert state(store, id) == "pending"


def is_waited_for(store: Store) -> bool:
    """Whether a transaction waits for another's row, in PostgreSQL."""
    with store.begin() as tx:
        return bool(tx.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one())


def test_what_is_refused_fails_and_what_is_held_stays(store: Store) -> None:
    refused, held = send(store), send(store)
    first, second = store.outbox.pending(9, MEGABYTE)
    with store.begin() as tx:
        store.outbox.mark_refused(tx, {first.seq: "too large"})
        store.outbox.mark_held(tx, {second.seq: "no such topic"})
    assert (state(store, refused), row(store, refused).error) == ("failed", "too large")
    assert (state(store, held), row(store, held).error) == ("pending", "no such topic")
    assert relay(store) == [held]
    assert row(store, held).error is None


def test_a_person_can_have_messages_sent_again(store: Store) -> None:
    id, other = send(store, "a"), send(store)
    relay(store)
    store.outbox.confirm([(id, "a")])
    assert store.outbox.resend([id, "unknown"]) == 1
    assert row(store, id).waiting == ["a"]
    assert relay(store) == [id]
    with store.begin() as tx:
        store.outbox.mark_refused(tx, {})
    assert store.outbox.resend_failed() == 0
    send(store)
    (message,) = store.outbox.pending(9, MEGABYTE)
    with store.begin() as tx:
        store.outbox.mark_refused(tx, {message.seq: "too large"})
    assert store.outbox.resend_failed() == 1
    assert relay(store) == [message.id]
    assert state(store, other) == "sent"


def test_only_what_is_done_is_cleaned(store: Store, clock: ManualClock) -> None:
    done, waiting = send(store), send(store, "a")
    relay(store)
    pending = send(store)
    assert store.outbox.clean(clock.now_ms()) == 0
    clock.pass_ms(1)
    assert store.outbox.clean(clock.now_ms()) == 1
    assert store.outbox.find(done) is None
    assert [found.id for found in store.outbox.latest()] == [pending, waiting]


def test_messages_can_be_listed_and_counted(store: Store) -> None:
    ids = [send(store, topic=topic) for topic in "aba"]
    relay(store)
    late = send(store, topic="a")
    assert [found.id for found in store.outbox.latest(limit=2)] == [late, ids[2]]
    assert [found.id for found in store.outbox.latest(state="sent", topic="a")] == [ids[2], ids[0]]
    assert store.outbox.counts() == {"pending": 1, "sent": 3, "confirmed": 0, "failed": 0}

"""Where failed messages go, and that no crash on the way loses or doubles one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.handlers.failing import TOPIC, Crash, Process, Topics, message, spec_of

from headrace.client.message import Message
from headrace.errors import HandlerError
from headrace.handlers.dead_letters import LATE_MS
from headrace.handlers.execution import InTransaction
from headrace.handlers.failures import check_policy
from headrace.handlers.policies import Backoff, Resend, Retry
from headrace.handlers.retries import LEASE_MS, REFRESH_MS
from headrace.handlers.spec import HandlerSpec
from headrace.store import Store, StoreUnavailable, open_store
from headrace.store.failed_messages import MessageSelection
from headrace.testing import VirtualClock

PARKING = Retry(then=Backoff("1s", "1m", attempts=2))

Begin = Callable[[HandlerSpec], Process]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=1_000_000)


@pytest.fixture
def store(store_url: str, clock: VirtualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


@pytest.fixture
def topics() -> Topics:
    return Topics()


class Shop:
    """A handler that fails for what is broken; `done` is what it has done."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.tried: list[int] = []
        self.broken: set[int] = set()

    def handle(self, order: Message) -> None:
        self.tried.append(order.offset)
        if order.offset in self.broken:
            raise ValueError(f"order {order.offset} is broken")
        self.done.append(order.offset)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def begin(store: Store, topics: Topics, clock: VirtualClock, shop: Shop) -> Begin:
    """Starts a process that runs the handler."""
    return lambda spec: Process(spec, store, topics, clock, shop.handle)


def test_a_failed_message_is_parked_with_all_that_is_known_of_it(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {5}
    process.receive(message(5))
    (parked,) = process.parked
    assert (parked.attempts, parked.next_ms) == (1, clock.now_ms() + 1000)
    assert parked.failure.error == "ValueError: order 5 is broken"
    assert parked.failure.place.endswith("Shop.handle")
    assert "is broken" in parked.failure.traceback


def test_later_messages_of_a_parked_key_wait_behind_it_and_others_flow(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}
    for offset, key in ((1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a")):
        process.receive(message(offset, key))
    assert shop.done == [2, 4]
    shop.broken = set()
    clock.advance(1000)
    while process.job.step():
        pass
    assert shop.done == [2, 4, 1, 3, 5]
    assert process.failures.parking
    process.receive(message(6, "a"))
    assert shop.done == [2, 4, 1, 3, 5, 6]
    assert not process.failures.parking


def test_a_key_that_is_free_again_is_let_go_without_another_message_of_it(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1, 2}
    process.receive(message(1, "a"))
    process.receive(message(2, "b"))
    shop.broken = {2}
    clock.advance(1000)
    process.job.step()
    assert process.failures.parking
    assert not process.failures.is_waiting(message(3, "a"))
    assert process.failures.is_waiting(message(4, "b"))
    clock.advance(REFRESH_MS)
    process.job.step()
    assert shop.tried == [1, 2, 1, 2, 2]
    assert not process.failures.parking


def test_a_key_that_is_parked_while_the_table_is_read_is_not_let_go(
    begin: Begin, store: Store, shop: Shop, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1, 2}
    process.receive(message(1, "a"))
    store.retries.drop(MessageSelection())
    places = store.retries.places

    def read_then_park(*arguments: object) -> object:
        found = places(*arguments)  # type: ignore[arg-type]
        process.receive(message(2, "a"))
        return found

    monkeypatch.setattr(store.retries, "places", read_then_park)
    process.failures.refresh()
    assert [parked.message.offset for parked in process.parked] == [2]
    assert process.failures.is_waiting(message(3, "a"))


def test_an_order_by_partition_waits_as_a_whole(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    process = begin(spec_of("partition", PARKING))
    shop.broken = {1}
    for offset, key in ((1, "a"), (2, "b"), (3, None)):
        process.receive(message(offset, key))
    assert shop.done == []
    shop.broken = set()
    clock.advance(1000)
    while process.job.step():
        pass
    assert shop.done == [1, 2, 3]


@pytest.mark.parametrize(("order", "key"), [("none", "a"), ("key", None)])
def test_without_order_nothing_waits_for_another(
    begin: Begin, shop: Shop, order: str, key: str | None
) -> None:
    process = begin(spec_of(order, PARKING))
    shop.broken = {1}
    for offset in (1, 2, 3):
        process.receive(message(offset, key))
    assert shop.done == [2, 3]
    assert not process.failures.parking


def test_a_message_that_never_works_is_a_dead_letter_and_its_key_goes_on(
    begin: Begin, shop: Shop, clock: VirtualClock, topics: Topics
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}
    process.receive(message(1, "a", b"payload", headers=[("trace", b"t1")]))
    process.receive(message(2, "a"))
    for _ in range(4):
        clock.advance(60_000)
        process.job.step()
    assert shop.tried == [1, 1, 1, 2]
    assert shop.done == [2]
    assert process.parked == []
    (letter,) = process.letters
    assert (letter.attempts, letter.state) == (3, "dead")
    (sent,) = topics.of("orders.dlq")
    assert (sent.key, sent.value) == (b"a", b"payload")
    headers = {name: (value or b"").decode() for name, value in sent.headers.items()}
    assert headers["trace"] == "t1"
    assert headers["headrace-id"] == "orders/0/1"
    assert headers["headrace-error"] == "ValueError: order 1 is broken"
    assert headers["headrace-fingerprint"] == letter.failure.fingerprint
    assert headers["headrace-attempts"] == "3"
    assert headers["headrace-source"] == "orders/0/1"
    assert headers["headrace-handler"] == "bill"
    assert headers["headrace-version"] == process.spec.version
    assert [alarm.name for alarm in process.rung] == ["dead-letter"]


def test_a_re_sent_message_keeps_its_id_and_counts_its_attempts(
    begin: Begin, shop: Shop, topics: Topics
) -> None:
    process = begin(spec_of("none", Retry(in_place=1, delay=0, then=Resend(attempts=1))))
    shop.broken = {1, 2}
    process.receive(message(1, headers=[("trace", b"t1")]))
    (sent,) = topics.of(TOPIC)
    assert sent.headers == {
        "trace": b"t1",
        "headrace-id": b"orders/0/1",
        "headrace-resent": b"2",
    }
    process.receive(message(2, headers=list(sent.headers.items())))
    (letter,) = process.letters
    assert (letter.message.id, letter.attempts) == ("orders/0/1", 4)
    assert "headrace-resent" not in topics.of("orders.dlq")[0].headers


def test_a_handler_without_dead_letters_drops_with_an_alarm(begin: Begin, shop: Shop) -> None:
    process = begin(spec_of(dead_letters=False))
    shop.broken = {1}
    process.receive(message(1))
    assert process.letters == []
    assert [alarm.name for alarm in process.rung] == ["message-dropped"]


def test_without_a_store_dead_letters_go_to_their_topic(
    topics: Topics, clock: VirtualClock
) -> None:
    from headrace.handlers.failures import Failures
    from headrace.telemetry.alarms import Alarms

    failures = Failures(spec_of(), None, topics, clock, Alarms())  # type: ignore[arg-type]
    failures.assigned(TOPIC, [0])
    assert not failures.is_waiting(message(1))
    failures.give_up(message(1), ValueError("no"), 1)
    assert [sent.topic for sent in topics.sent] == ["orders.dlq"]


def test_policies_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(HandlerError, match="needs a store for its retry table"):
        check_policy(spec_of(retry=PARKING), has_store=False)
    for order in ("key", "partition"):
        with pytest.raises(HandlerError, match="breaks order"):
            check_policy(spec_of(order, Retry(then=Resend())), has_store=True)
    check_policy(spec_of("none", Retry(then=Resend())), has_store=False)


# -- crashes ---------------------------------------------------------------------------------


def test_a_crash_between_failed_and_parked_repeats_the_message(
    begin: Begin, store: Store, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}

    def crash() -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(store.retries, "park", lambda *_: crash())
        with pytest.raises(Crash):
            process.receive(message(1))
    again = begin(spec_of(retry=PARKING))
    again.receive(message(1))
    assert [parked.attempts for parked in again.parked] == [1]


def test_a_crash_between_parked_and_committed_changes_nothing(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}
    process.receive(message(1))
    process.receive(message(2))
    again = begin(spec_of(retry=PARKING))
    again.receive(message(1))
    again.receive(message(2))
    assert shop.tried == [1]
    assert [parked.message.offset for parked in again.parked] == [1, 2]


def test_a_message_that_dies_in_the_table_before_it_comes_again_stays_dead(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    shop.broken = {1}
    begin(spec_of(retry=PARKING)).receive(message(1))
    # A crash before the commit: it comes again, but behind a backlog, and the job is faster.
    again = begin(spec_of(retry=PARKING))
    while again.parked:
        clock.advance(REFRESH_MS)
        again.job.step()
    again.failures.refresh()
    shop.broken = set()
    again.receive(message(2))
    again.receive(message(1))
    assert shop.done == [2]
    assert [letter.message.offset for letter in again.letters] == [1]


def test_a_message_without_order_that_comes_again_is_not_run_beside_its_retry(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    begin(spec_of("none", PARKING)).failures.give_up(message(1), ValueError("no"), 1)
    again = begin(spec_of("none", PARKING))
    again.receive(message(1))
    assert shop.tried == []
    clock.advance(1000)
    again.job.step()
    again.receive(message(1))
    assert shop.done == [1]
    assert not again.failures.parking


def test_a_crash_before_the_letter_is_in_its_topic_is_made_good_by_the_job(
    begin: Begin, shop: Shop, clock: VirtualClock, topics: Topics
) -> None:
    process = begin(spec_of())
    shop.broken = {1}
    topics.refusals = [Crash()]
    with pytest.raises(Crash):
        process.receive(message(1))
    shop.broken = set()
    again = begin(spec_of())
    # It is a dead letter already: it comes again, because it was not committed, and is not run.
    again.receive(message(1))
    assert shop.tried == [1]
    assert [letter.state for letter in again.letters] == ["new"]
    clock.advance(LATE_MS)
    again.job.step()
    assert [letter.state for letter in again.letters] == ["dead"]
    assert [sent.headers["headrace-id"] for sent in topics.of("orders.dlq")] == [b"orders/0/1"]


def test_a_crash_after_the_letter_is_in_its_topic_sends_it_again_with_the_same_id(
    begin: Begin, store: Store, shop: Shop, clock: VirtualClock, topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    process = begin(spec_of())
    shop.broken = {1}

    def crash() -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(store.dead_letters, "change", lambda *_: crash())
        with pytest.raises(Crash):
            process.receive(message(1))
    again = begin(spec_of())
    again.receive(message(1))
    clock.advance(LATE_MS)
    again.job.step()
    ids = [sent.headers["headrace-id"] for sent in topics.of("orders.dlq")]
    assert ids == [b"orders/0/1", b"orders/0/1"]
    assert [letter.state for letter in again.letters] == ["dead"]


def test_a_dlq_topic_that_is_unavailable_does_not_stop_the_consumer(
    begin: Begin, shop: Shop, clock: VirtualClock, topics: Topics
) -> None:
    process = begin(spec_of())
    shop.broken = {1}
    shop.broken = {1, 3}
    topics.refusals = [OSError("no such topic")]
    for offset in (1, 2, 3):
        process.receive(message(offset))
    assert shop.done == [2]
    # The second letter does not wait for the topic in its turn.
    assert [alarm.name for alarm in process.rung].count("dead-letter-unsent") == 1
    assert topics.of("orders.dlq") == []
    clock.advance(LATE_MS)
    process.job.step()
    assert len(topics.of("orders.dlq")) == 2


def test_a_retry_that_dies_after_its_success_has_its_effect_once(
    begin: Begin, store: Store, shop: Shop, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}
    process.receive(message(1))
    shop.broken = set()
    clock.advance(1000)

    def crash() -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(store.retries, "remove", lambda *_: crash())
        with pytest.raises(Crash):
            process.job.step()
    # The transaction was rolled back with the handler's own writes: nothing happened.
    shop.done.clear()
    again = begin(spec_of(retry=PARKING))
    assert again.job.step() == 0
    clock.advance(LEASE_MS)
    assert again.job.step() == 1
    assert shop.done == [1]
    assert again.parked == []


def test_a_store_that_is_unavailable_counts_as_no_attempt(
    begin: Begin, shop: Shop, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}
    process.receive(message(1))
    clock.advance(1000)

    def away(_message: Message) -> None:
        raise StoreUnavailable("the store is not available")

    process.handle = away
    with pytest.raises(StoreUnavailable):
        process.job.step()
    (parked,) = process.parked
    assert parked.attempts == 1
    process.handle = shop.handle
    clock.advance(LEASE_MS)
    process.job.step()
    assert [parked.attempts for parked in process.parked] == [2]


class Late(Process):
    """A process that is overtaken between its lease and its try."""

    def execute_in_one(self, message: Message, also: InTransaction | None = None) -> None:
        self.store.retries.drop(MessageSelection(ids=[message.id]))
        super().execute_in_one(message, also)


def test_what_a_process_did_too_late_is_rolled_back(
    begin: Begin, store: Store, shop: Shop, topics: Topics, clock: VirtualClock
) -> None:
    shop.broken = {1}
    begin(spec_of(retry=PARKING)).receive(message(1))
    shop.broken = set()
    clock.advance(1000)
    late = Late(spec_of(retry=PARKING), store, topics, clock, shop.handle)
    assert late.job.step() == 1
    assert shop.done == [1]
    # The handler ran, but its transaction is undone, with the inbox row in it.
    assert store.inbox.find("orders/0/1") == []


def test_an_error_that_changes_changes_what_the_table_says(
    begin: Begin, shop: Shop, clock: VirtualClock
) -> None:
    process = begin(spec_of(retry=PARKING))
    shop.broken = {1}
    process.receive(message(1))

    def other(_order: Message) -> None:
        raise KeyError("another reason")

    process.handle = other
    clock.advance(1000)
    process.job.step()
    (parked,) = process.parked
    assert parked.failure.error == "KeyError: 'another reason'"
    assert parked.next_ms == clock.now_ms() + 2000

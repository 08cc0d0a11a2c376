"""The job that works the retry table, in its own thread and beside others."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.handlers.failing import Process, Topics, message, spec_of
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.client.message import Message
from headrace.errors import Unavailable
from headrace.handlers.policies import Backoff, Resend, Retry
from headrace.handlers.retries import LEASE_MS
from headrace.store import Store, StoreUnavailable, open_store
from headrace.testing import VirtualClock

HOUR_MS = 3_600_000
PARKING = Retry(jitter=0, then=Backoff("1h", "1d", attempts=3))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=1_000_000)


@pytest.fixture
def store(store_url: str, clock: VirtualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


class Handler:
    """Fails while `error` is set; waits in the middle while `may_end` is not."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.error: BaseException | None = ValueError("not yet")
        self.tried: list[tuple[int, int]] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, order: Message) -> None:
        self.tried.append((order.offset, self.clock.monotonic_ms()))
        assert self.may_end.wait(WAIT_SECONDS)
        if self.error is not None:
            raise self.error


@pytest.fixture
def handler(clock: VirtualClock) -> Handler:
    return Handler(clock)


@pytest.fixture
def process(store: Store, clock: VirtualClock, handler: Handler) -> Iterator[Process]:
    """A process with its job at work in a thread."""
    # In SQLite a long transaction keeps all other writers out, those of leases too.
    spec = spec_of("none", PARKING)
    process = Process(spec, store, Topics(), clock, handler, is_transactional=False)
    thread = threading.Thread(target=process.job.run)
    thread.start()
    wait_until(lambda: clock.next_deadline_ms() is not None, "the job waits")
    yield process
    handler.may_end.set()
    process.job.stop()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def test_messages_are_tried_at_their_times_without_polling(
    process: Process, clock: VirtualClock, handler: Handler
) -> None:
    process.receive(message(1))
    wait_until(lambda: clock.next_deadline_ms() == HOUR_MS, "the job knows when it is due")
    clock.advance(10 * HOUR_MS)
    assert handler.tried == [(1, 0), (1, HOUR_MS), (1, 3 * HOUR_MS), (1, 7 * HOUR_MS)]
    assert [letter.attempts for letter in process.letters] == [4]


def test_a_long_try_keeps_its_lease(
    process: Process, store: Store, clock: VirtualClock, handler: Handler
) -> None:
    process.receive(message(1))
    wait_until(lambda: clock.next_deadline_ms() == HOUR_MS, "the job knows when it is due")
    handler.error = None
    handler.may_end.clear()
    clock.advance(HOUR_MS)
    wait_until(lambda: len(handler.tried) == 2, "the try has begun")
    for _ in range(6):
        wait_until(lambda: clock.next_deadline_ms() is not None, "the lease is watched")
        clock.advance(LEASE_MS // 2)
    assert store.retries.lease("bill", "another", clock.now_ms(), LEASE_MS, 10) == []
    handler.may_end.set()
    wait_until(lambda: process.parked == [], "it is done")
    assert len(handler.tried) == 2


def test_a_stopped_job_gives_back_what_it_has_not_tried(
    process: Process, store: Store, clock: VirtualClock, handler: Handler
) -> None:
    for offset in (1, 2, 3):
        process.receive(message(offset))
    wait_until(lambda: clock.next_deadline_ms() == HOUR_MS, "the job knows when it is due")
    handler.error = None
    handler.may_end.clear()
    clock.advance(HOUR_MS)
    wait_until(lambda: len(handler.tried) == 4, "the first try has begun")
    process.job.stop()
    handler.may_end.set()
    wait_until(lambda: len(process.parked) == 2, "the first is done")
    wait_until(
        lambda: [parked.owner for parked in process.parked] == [None, None], "the leases are free"
    )
    assert len(handler.tried) == 4


def test_a_message_that_cannot_be_put_away_does_not_hold_up_the_others(
    store: Store, clock: VirtualClock, handler: Handler
) -> None:
    topics = Topics()
    spec = spec_of("none", Retry(then=PARKING.then, rules={KeyError: Retry(then=Resend())}))
    process = Process(spec, store, topics, clock, handler)
    for offset in (1, 2):
        process.receive(message(offset))
    handler.error = KeyError("sent again")
    topics.refusals = [OSError("the topic is away")]
    clock.advance(HOUR_MS)
    assert process.job.step() == 2
    assert [sent.headers["headrace-id"] for sent in topics.sent] == [b"orders/0/2"]
    clock.advance(LEASE_MS)
    assert process.job.step() == 1
    assert process.parked == []


def test_a_store_that_is_unavailable_for_a_while_is_waited_for(
    process: Process, clock: VirtualClock, handler: Handler
) -> None:
    process.receive(message(1))
    wait_until(lambda: clock.next_deadline_ms() == HOUR_MS, "the job knows when it is due")
    handler.error = StoreUnavailable("the store is not available")
    clock.advance(HOUR_MS)
    assert [parked.attempts for parked in process.parked] == [1]
    handler.error = None
    clock.advance(LEASE_MS + 1_000)
    wait_until(lambda: process.parked == [], "it is done")


def test_a_handler_that_wants_to_end_the_process_does_not_end_the_job(
    process: Process, clock: VirtualClock, handler: Handler
) -> None:
    process.receive(message(1))
    wait_until(lambda: clock.next_deadline_ms() == HOUR_MS, "the job knows when it is due")
    handler.error = SystemExit(2)
    clock.advance(10 * HOUR_MS)
    assert len(handler.tried) == 4
    assert [letter.failure.error for letter in process.letters] == ["SystemExit: 2"]


def test_brokers_that_are_away_count_as_no_attempt_and_hold_up_no_other(
    store: Store, clock: VirtualClock, handler: Handler
) -> None:
    process = Process(spec_of("none", PARKING), store, Topics(), clock, handler)
    for offset in (1, 2):
        process.receive(message(offset))

    def handle(order: Message) -> None:
        if order.offset == 1:
            raise Unavailable("the transaction was aborted")

    process.handle = handle
    clock.advance(HOUR_MS)
    assert process.job.step() == 2
    assert [(parked.message.offset, parked.attempts) for parked in process.parked] == [(1, 1)]
    handler.error = None
    process.handle = handler
    clock.advance(LEASE_MS)
    assert process.job.step() == 1
    assert process.parked == []

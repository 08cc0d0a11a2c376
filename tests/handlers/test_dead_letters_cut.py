"""Dead letters that their topic does not take whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.handlers.failing import Process, Topics, message, spec_of

from headrace.client.message import Message
from headrace.handlers.dead_letters import LATE_MS
from headrace.handlers.failures import Failures
from headrace.handlers.policies import Resend, Retry
from headrace.store import Store, open_store
from headrace.telemetry.alarms import Alarm, Alarms
from headrace.testing import VirtualClock

LARGE = b"x" * 5_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=1_000_000)


@pytest.fixture
def store(store_url: str, clock: VirtualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


def fail(_order: Message) -> None:
    raise ValueError("no")


def test_a_letter_that_is_too_large_is_sent_without_what_makes_it_so(
    store: Store, clock: VirtualClock
) -> None:
    topics = Topics(bytes_max=len(LARGE) + 300)
    process = Process(spec_of(), store, topics, clock, fail)
    process.receive(message(1, value=LARGE))
    process.receive(message(2, value=LARGE * 2))
    process.receive(message(3, headers=[("trace", LARGE * 2)]))
    process.receive(message(4))
    sent = topics.of("orders.dlq")
    assert [one.value for one in sent] == [LARGE, b"", b"", b"v"]
    assert [one.headers.get("headrace-left-out") for one in sent] == [
        b"traceback",
        b"traceback, value",
        b"traceback, value, key, headers",
        None,
    ]
    assert [one.headers["headrace-id"] for one in sent] == [
        f"orders/0/{offset}".encode() for offset in (1, 2, 3, 4)
    ]
    assert "headrace-traceback" not in sent[0].headers
    assert [(letter.state, letter.message.value) for letter in process.letters] == [
        ("dead", LARGE),
        ("dead", LARGE * 2),
        ("dead", b"v"),
        ("dead", b"v"),
    ]
    assert [alarm.name for alarm in process.rung].count("dead-letter-cut") == 2


def test_a_letter_that_is_refused_whatever_is_left_out_holds_up_no_other(
    store: Store, clock: VirtualClock
) -> None:
    topics = Topics(bytes_max=-1)
    process = Process(spec_of(), store, topics, clock, fail)
    process.receive(message(1))
    topics.bytes_max = 1_000_000
    # The topic is not taken to be away for it.
    process.receive(message(2))
    assert [letter.state for letter in process.letters] == ["new", "dead"]
    topics.bytes_max = -1
    process.receive(message(3))
    topics.refusals = [ValueError("a bad header")] * 4
    topics.bytes_max = 1_000_000
    clock.advance(LATE_MS)
    process.job.step()
    assert [letter.state for letter in process.letters] == ["new", "dead", "dead"]
    clock.advance(LATE_MS)
    process.job.step()
    assert {letter.state for letter in process.letters} == {"dead"}


def test_without_a_store_a_letter_that_is_too_large_is_sent_without_its_value(
    clock: VirtualClock,
) -> None:
    topics = Topics(bytes_max=4_000)
    rung: list[Alarm] = []
    alarms = Alarms()
    alarms.add(rung.append)
    failures = Failures(spec_of(), None, topics, clock, alarms)  # type: ignore[arg-type]
    failures.give_up(message(1, value=LARGE), ValueError("no"), 1)
    (sent,) = topics.of("orders.dlq")
    assert (sent.value, sent.key) == (b"", b"k")
    assert sent.headers["headrace-source"] == b"orders/0/1"
    assert [alarm.name for alarm in rung] == ["dead-letter-cut", "dead-letter"]


def test_a_message_that_is_too_large_to_be_re_sent_is_a_dead_letter(clock: VirtualClock) -> None:
    topics = Topics(bytes_max=len(LARGE))
    spec = spec_of("none", Retry(then=Resend()))
    failures = Failures(spec, None, topics, clock, Alarms())  # type: ignore[arg-type]
    failures.give_up(message(1, value=LARGE), ValueError("no"), 1)
    assert [sent.topic for sent in topics.sent] == ["orders.dlq"]

"""A session polls no more than fits, runs messages on the right thread, commits what is safe."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from tests.handlers.running import committed, send
from tests.handlers.stage import FakeConsumer, Stage, records
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.handlers import App
from headrace.handlers import session as session_module
from headrace.handlers.lanes import Track
from headrace.handlers.session import COMMIT_INTERVAL_SECONDS, POLL_RECORDS, Session

PLACE = ("t", 0)


class Now:
    """The session's clock."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    clock = Now()
    monkeypatch.setattr(session_module, "monotonic", clock)
    return clock


def session_of(function: Any, **options: Any) -> tuple[Session, FakeConsumer]:
    """A session with one partition and a consumer of lists; the test takes its turns."""
    stage = Stage(function, None, **options)
    session = Session(
        stage.execution, stage.failures, stage.context, threading.Event(), threading.Event()
    )
    session.consumer.close()
    consumer = FakeConsumer()
    fake: Any = consumer
    session.consumer = session.assignment._consumer = fake
    session.assignment.tracks[PLACE] = Track(*PLACE)
    return session, consumer


def ignore(number: int) -> None:
    """A handler that does nothing."""


def test_a_poll_asks_for_no_more_than_fits(now: Now) -> None:
    session, consumer = session_of(ignore, buffer_messages=60)
    session._turn()
    assert consumer.polls == [60]
    roomy, consumer = session_of(ignore)
    roomy._turn()
    assert consumer.polls == [POLL_RECORDS]


def test_a_full_buffer_pauses_its_partition_and_only_then_polls_on(
    now: Now,
) -> None:
    go_on = threading.Event()

    def waits(number: int) -> None:
        assert go_on.wait(30)

    session, consumer = session_of(waits, buffer_messages=60, order="none")
    consumer.polled.append(records(0, range(60)))
    session._turn()
    session._turn()
    assert len(consumer.polls) == 1, "full: a short wait comes first"
    assert not consumer.paused
    now.seconds += 1
    session._turn()
    assert consumer.paused == {PLACE}
    assert len(consumer.polls) == 2, "other partitions may still be read"
    go_on.set()
    wait_until(lambda: session.scheduler.lanes.messages == 0, "all done")
    session._turn()
    assert not consumer.paused
    session.workers.stop()


def test_direct_keeps_its_membership_while_every_partition_is_paused(now: Now) -> None:
    go_on = threading.Event()

    def waits(number: int) -> None:
        assert go_on.wait(30)

    session, consumer = session_of(waits, pressure="direct", order="none", workers=2)
    consumer.polled.append(records(0, range(2)))
    session.workers.start()
    session._turn()
    assert consumer.polls == [2]
    session._turn()
    assert consumer.polls == [2], "a short wait comes first"
    now.seconds += 10
    session._turn()
    session._turn()
    assert consumer.paused == {PLACE}
    assert consumer.polls[1:] == [1, 1], "a consumer that never polls is put out of its group"
    go_on.set()
    session.workers.stop()


def test_offsets_are_committed_at_the_interval_and_not_before(now: Now) -> None:
    session, consumer = session_of(ignore, order="none")
    session.workers.start()
    consumer.polled.append(records(0, range(5)))
    session._turn()
    wait_until(lambda: session.scheduler.lanes.messages == 0, "all done")
    session._turn()
    assert consumer.commits == []
    now.seconds += COMMIT_INTERVAL_SECONDS
    session._turn()
    assert consumer.commits == [{PLACE: 5}]
    session.workers.stop()


def test_at_most_once_commits_what_was_polled_before_any_of_it_runs(now: Now) -> None:
    committed_at: list[int] = []

    def work(number: int) -> None:
        committed_at.append(consumer.synced[-1][PLACE] if consumer.synced else -1)

    session, consumer = session_of(work, delivery="at_most_once")
    consumer.polled.append(records(0, range(5)))
    session._turn()
    wait_until(lambda: session.scheduler.lanes.messages == 0, "all done")
    assert committed_at == [5] * 5
    session.workers.stop()


@pytest.mark.parametrize("in_one_poll", [True, False])
def test_a_recreated_topic_is_read_from_its_beginning(in_one_poll: bool) -> None:
    ran: list[int] = []

    def work(number: int) -> None:
        ran.append(number)

    session, consumer = session_of(work, workers=1)
    old = session.assignment.tracks[PLACE]
    session.workers.start()
    before, after = records(0, [500]), records(0, [0, 1])
    consumer.polled += [before + after] if in_one_poll else [before, after]
    while consumer.polled:
        session._turn()
    new = session.assignment.tracks[PLACE]
    session._drain([new], float("inf"))
    session.workers.stop()
    assert ran == [500, 0, 1]
    assert new is not old
    assert new.progress.safe_offset() == 2


@pytest.mark.parametrize("pressure", ["caller_runs", "pause"])
def test_only_caller_runs_runs_messages_on_the_polling_thread(pair: Pair, pressure: str) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(400)])
    app = App(pair.bootstrap)
    ran: Counter[str] = Counter()
    tick = threading.Event()

    @app.handler(topic, group="g", order="none", workers=1, pressure=pressure, buffer_messages=20)
    def work(number: int) -> None:
        tick.wait(0.002)
        ran[threading.current_thread().name] += 1

    with app:
        wait_until(lambda: ran.total() == 400, "everything")
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 400)
    # The one worker is always behind a full buffer, so the polling thread helps or waits.
    assert ran["g.work-1"] > 0
    assert (ran["g.work-runner"] > 0) == (pressure == "caller_runs")
    assert set(ran) <= {"g.work-1", "g.work-runner"}

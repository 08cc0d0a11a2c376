"""The scheduler with real worker threads, and records and failures made by hand."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from typing import Any

import pytest
from tests.handlers.records import FakeRecord
from tests.waiting import wait_until

from headrace.client.message import Message
from headrace.errors import Unavailable
from headrace.handlers.chunks import ChunkRunner
from headrace.handlers.context import AppContext
from headrace.handlers.execution import Execution
from headrace.handlers.lanes import Track
from headrace.handlers.policies import Again, DeadLetter, Step
from headrace.handlers.scheduler import Pace, Scheduler
from headrace.handlers.spec import make_spec
from headrace.handlers.workers import ThreadWorkers


class FakeFailures:
    """Two tries in place, then given up."""

    parking = False

    def __init__(self) -> None:
        self.given_up: list[Message] = []

    def step(self, error: BaseException, attempts: int) -> Step:
        return Again(1) if attempts < 3 else DeadLetter()

    def give_up(self, message: Message, error: BaseException, attempts: int) -> None:
        assert attempts == 3
        self.given_up.append(message)


class Stage:
    """A scheduler and its workers, at work on some partitions."""

    def __init__(self, function: Any, workers: int, **options: Any) -> None:
        spec = make_spec(function, ["t"], **options)
        context = AppContext(bootstrap="nowhere:1")
        self.failures = FakeFailures()
        failures: Any = self.failures
        self.scheduler = Scheduler(spec, context)
        chunks = ChunkRunner(Execution(spec, context), failures, self.scheduler)
        self.workers = ThreadWorkers(self.scheduler, chunks, 1, workers)
        self.tracks = [Track("t", partition) for partition in range(3)]
        self.workers.start()

    def add(self, count: int, keys: int) -> None:
        for track in self.tracks:
            first = max(track.progress.next_offset, 0)
            records = [
                FakeRecord(track.partition, offset, b"%d" % (offset % keys))
                for offset in range(first, first + count)
            ]
            self.scheduler.add({track: records})
            self.workers.wake()

    def finish(self) -> None:
        wait_until(lambda: self.scheduler.lanes.messages == 0, "everything is done")
        self.workers.stop()


@pytest.mark.parametrize("order", ["none", "partition", "key"])
def test_everything_is_done_once_and_in_order_though_some_fail(order: str) -> None:
    chance = random.Random(7)
    lock = threading.Lock()
    done: defaultdict[tuple[int, bytes | None], list[int]] = defaultdict(list)
    tries: Counter[tuple[int, int]] = Counter()
    fails = {(p, o): chance.choice((0, 0, 0, 0, 1, 2, 9)) for p in range(3) for o in range(400)}

    def work(number: int, message: Message) -> None:
        place = message.partition, message.offset
        with lock:
            tries[place] += 1
            assert message.attempt == tries[place]
            if tries[place] <= fails[place]:
                raise ValueError("as planned")
            done[message.partition, message.key if order == "key" else None].append(number)

    stage = Stage(work, 8, order=order)
    stage.add(200, keys=7)
    stage.add(200, keys=7)
    stage.finish()
    given_up = {(message.partition, message.offset) for message in stage.failures.given_up}
    assert given_up == {place for place, count in fails.items() if count == 9}
    assert sum(map(len, done.values())) + len(given_up) == 3 * 400
    assert all(track.progress.safe_offset() == 400 for track in stage.tracks)
    if order != "none":
        assert all(numbers == sorted(numbers) for numbers in done.values())


def test_a_handler_that_waits_gets_more_threads() -> None:
    pause = threading.Event()

    def waits(number: int) -> None:
        pause.wait(0.003)

    stage = Stage(waits, 12, order="none")
    stage.add(200, keys=1)
    wait_until(lambda: len(stage.workers) == 12, "12 threads")
    stage.finish()


def test_a_handler_that_is_stuck_from_the_start_gets_more_threads() -> None:
    go_on = threading.Event()

    def waits(number: int) -> None:
        assert go_on.wait(20)

    stage = Stage(waits, 8, order="none")
    stage.add(8, keys=1)

    def is_full() -> bool:
        stage.workers.wake()
        return len(stage.workers) == 8

    wait_until(is_full, "started before anything has ended")
    go_on.set()
    stage.finish()


def test_more_threads_are_no_use_for_what_computes() -> None:
    pace = Pace(target_ms=2, messages_max=500)
    assert not pace.has_use_for_more(1), "nothing is known yet"
    pace.note(10, ns=10_000, cpu_ns=9_000)
    assert not pace.has_use_for_more(1)
    for _ in range(30):
        pace.note(1, ns=5_000_000, cpu_ns=50_000)
    assert pace.has_use_for_more(40)
    assert not pace.has_use_for_more(90)


def test_while_something_is_away_everything_waits_and_no_attempt_is_counted() -> None:
    is_away = threading.Event()
    is_away.set()
    seen: list[int] = []
    asked = threading.Event()

    def work(number: int, message: Message) -> None:
        if is_away.is_set():
            asked.set()
            raise Unavailable("the table is not ready")
        assert message.attempt == 1
        seen.append(number)

    stage = Stage(work, 2, order="partition")
    stage.add(5, keys=1)
    assert asked.wait(10)
    is_away.clear()
    stage.finish()
    assert sorted(seen) == sorted([*range(5)] * 3)
    assert not stage.failures.given_up


def test_closing_waits_for_what_runs_and_drops_what_waits() -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def work(number: int) -> None:
        begun.set()
        assert go_on.wait(10)
        seen.append(number)

    stage = Stage(work, 1, order="partition")
    stage.add(50, keys=1)
    assert begun.wait(10)
    assert not stage.scheduler.close(stage.tracks, 1)
    go_on.set()
    assert stage.scheduler.close(stage.tracks, 10_000)
    assert len(seen) < 50
    assert stage.scheduler.lanes.messages == 0
    safe = [track.progress.safe_offset() for track in stage.tracks]
    assert sum(max(offset, 0) for offset in safe) == len(seen)
    stage.workers.stop()


def test_a_chunk_is_as_long_as_its_time_allows() -> None:
    pace = Pace(target_ms=2, messages_max=500)
    assert pace.chunk == 1
    for _ in range(60):
        pace.note(100, 100 * 4_000)
    assert pace.chunk > 400
    pace.note(1, 5_000_000)
    assert pace.chunk == 1

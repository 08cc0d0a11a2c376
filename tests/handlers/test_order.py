"""Order by name: none, partition, key and latest, also when messages fail."""

from __future__ import annotations

import threading
from collections import defaultdict

import pytest
from tests.handlers.running import committed, send
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.client.message import Message
from headrace.handlers import App, Backoff, Retry


def by_key(seen: list[tuple[bytes | None, int]]) -> dict[bytes | None, list[int]]:
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for key, number in seen:
        found[key].append(number)
    return found


@pytest.mark.parametrize("in_place", [0, 3])
def test_a_failing_key_keeps_its_order_while_others_flow(pair: Pair, in_place: int) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(300)], key=lambda n: b"k%d" % (n % 10))
    app = App(pair.bootstrap, store=pair.store_url)
    seen: list[tuple[bytes | None, int]] = []
    failures: defaultdict[int, int] = defaultdict(int)
    others_done = threading.Event()
    retry = Retry(in_place=in_place, delay="5ms", then=Backoff("50ms", "100ms", attempts=200))

    @app.handler(topic, group="g", order="key", lanes=16, retry=retry)
    def work(number: int, message: Message) -> None:
        if number == 103 and not others_done.is_set():
            failures[number] += 1
            raise ValueError("its key waits, the others do not")
        seen.append((message.key, number))
        if len(seen) >= 280:
            others_done.set()

    with app:
        wait_until(lambda: len(seen) >= 300, "everything")
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 300, "commit")
    assert failures[103] >= 1
    lanes = by_key(seen)
    assert lanes == {b"k%d" % key: list(range(key, 300, 10)) for key in range(10)}


def test_keys_run_beside_each_other_and_one_key_alone(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(60)], key=lambda n: b"k%d" % (n % 6))
    app = App(pair.bootstrap)
    lock = threading.Lock()
    running: defaultdict[bytes | None, int] = defaultdict(int)
    most_of_one_key = 0
    all_six = threading.Barrier(6)
    done: list[int] = []

    @app.handler(topic, group="g", order="key", lanes=6)
    def work(number: int, message: Message) -> None:
        nonlocal most_of_one_key
        with lock:
            running[message.key] += 1
            most_of_one_key = max(most_of_one_key, running[message.key])
        if number < 6:
            # Passes only when all six keys of this one partition are at work at the same time.
            all_six.wait(20)
        with lock:
            running[message.key] -= 1
        done.append(number)

    with app:
        wait_until(lambda: len(done) == 60)
    assert most_of_one_key == 1
    assert not all_six.broken


def test_a_partition_is_worked_in_its_order_and_waits_for_a_retry(pair: Pair) -> None:
    topic = pair.topic("orders", 3)
    send(pair.bootstrap, topic, [b"%d" % n for n in range(300)], key=lambda n: b"%d" % n)
    app = App(pair.bootstrap)
    seen: defaultdict[int, list[int]] = defaultdict(list)
    failed: set[int] = set()

    @app.handler(topic, group="g", retry=Retry(in_place=2, delay="2ms"))
    def work(number: int, message: Message) -> None:
        if message.offset % 20 == 7 and number not in failed:
            failed.add(number)
            raise ValueError("once")
        seen[message.partition].append(message.offset)

    with app:
        wait_until(lambda: sum(map(len, seen.values())) == 300)
    assert failed
    assert all(offsets == sorted(offsets) for offsets in seen.values())


def test_without_order_a_slow_message_holds_up_nobody(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(100)])
    app = App(pair.bootstrap)
    seen: list[int] = []
    go_on = threading.Event()

    @app.handler(topic, group="g", order="none", workers=(1, 4))
    def work(number: int) -> None:
        if number == 0:
            assert go_on.wait(30)
        seen.append(number)

    with app:
        wait_until(lambda: len(seen) == 99, "all but the slow one")
        # What is done behind an unfinished message is not committed.
        scheduler = app.runners[0].scheduler
        assert scheduler is not None
        wait_until(lambda: scheduler.lanes.messages == 1, "the rest is settled")
        assert committed(pair.bootstrap, "g", topic) <= 0
        go_on.set()
        wait_until(lambda: len(seen) == 100)
    assert committed(pair.bootstrap, "g", topic) == 100


def test_latest_runs_once_for_the_messages_that_came_meanwhile(pair: Pair) -> None:
    topic = pair.topic("prices")
    app = App(pair.bootstrap)
    told: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    @app.handler(topic, group="g", order="latest", lanes=4)
    def refresh(key: str) -> None:
        told.append(key)
        begun.set()
        assert go_on.wait(30)

    with app:
        send(pair.bootstrap, topic, [b"0"], key=lambda _: b"gold")
        assert begun.wait(30)
        send(pair.bootstrap, topic, [b"%d" % n for n in range(50)], key=lambda _: b"gold")
        scheduler = app.runners[0].scheduler
        assert scheduler is not None
        wait_until(lambda: scheduler.lanes.messages == 51, "all 51 in memory")
        go_on.set()
        wait_until(lambda: scheduler.lanes.messages == 0, "all done")
    assert told == ["gold", "gold"]
    assert committed(pair.bootstrap, "g", topic) == 51


def test_a_hot_partition_does_not_starve_a_quiet_topic(pair: Pair) -> None:
    hot, quiet = pair.topic("hot"), pair.topic("quiet")
    send(pair.bootstrap, hot, [b"x" * 100] * 5_000)
    app = App(pair.bootstrap)
    hot_before_quiet: list[int] = []
    hot_done = 0
    tick = threading.Event()

    @app.handler(hot, quiet, group="g", order="partition", buffer_messages=200)
    def work(payload: bytes, message: Message) -> None:
        nonlocal hot_done
        if message.topic == quiet:
            hot_before_quiet.append(hot_done)
        else:
            hot_done += 1
            tick.wait(0.002)

    with app:
        wait_until(lambda: hot_done > 100, "the hot one runs")
        at = hot_done
        send(pair.bootstrap, quiet, [b"please"])
        wait_until(lambda: hot_before_quiet, "the quiet one")
        tick.set()
    assert hot_before_quiet[0] - at < 1_500

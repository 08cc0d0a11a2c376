"""Back-pressure: memory is bounded, nobody starves, and each way of holding back works."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.handlers.running import committed, send
from tests.stores import Pair
from tests.waiting import wait_until

from headrace.handlers import App, assignment, runner
from headrace.handlers.pressure import Load, PressureControl, PressureLimits
from headrace.protocol.partitions import TopicPartition
from headrace.store import StoreUnavailable
from headrace.store.spill import Spill
from headrace.telemetry.alarms import Alarm


def loads(*messages: int) -> dict[TopicPartition, Load]:
    return {("t", partition): Load(count, count * 10) for partition, count in enumerate(messages)}


def plan_after_grace(
    control: PressureControl, given_loads: Mapping[TopicPartition, Load], now_ms: int = 0
) -> tuple[set[int], set[int], int]:
    control.plan(given_loads, 1 << 40, now_ms)
    plan = control.plan(given_loads, 1 << 40, now_ms + control.limits.grace_ms)
    return {p for _, p in plan.pause}, {p for _, p in plan.resume}, plan.room


def test_a_partition_alone_may_fill_the_buffer() -> None:
    control = PressureControl(PressureLimits(100, 10_000))
    assert plan_after_grace(control, loads(99))[0] == set()
    assert plan_after_grace(control, loads(100))[0] == {0}
    assert control.plan(loads(60), 1 << 40, 0).resume == frozenset()
    assert control.plan(loads(50), 1 << 40, 0).resume == {("t", 0)}


def test_a_short_wait_comes_before_a_pause() -> None:
    control = PressureControl(PressureLimits(100, 10_000, grace_ms=50))
    first = control.plan(loads(100), 1 << 40, 0)
    assert (first.pause, first.room) == (frozenset(), 0)
    assert control.plan(loads(80), 1 << 40, 30).room == 100
    assert control.plan(loads(100), 1 << 40, 60).pause == frozenset()
    assert control.plan(loads(100), 1 << 40, 110).pause == {("t", 0)}


def test_bytes_count_as_well() -> None:
    control = PressureControl(PressureLimits(100, 1000))
    paused, _, _ = plan_after_grace(control, {("t", 0): Load(3, 2000), ("t", 1): Load(3, 10)})
    assert paused == {0}


def test_a_partition_stuck_behind_an_unfinished_message_rests() -> None:
    control = PressureControl(PressureLimits(100, 10_000))
    control.plan(loads(1, 1), 1 << 40, 0, stuck={("t", 0)})
    plan = control.plan(loads(1, 1), 1 << 40, 50, stuck={("t", 0)})
    assert plan.pause == {("t", 0)}
    assert plan.room == 100
    assert control.plan(loads(1, 1), 1 << 40, 60).resume == {("t", 0)}


def test_when_all_paused_it_says_so_that_somebody_polls() -> None:
    control = PressureControl(PressureLimits(4, 10_000, grace_ms=50), strict=True)
    assert not control.plan(loads(2, 2), 1 << 40, 0).all_paused
    plan = control.plan(loads(2, 2), 1 << 40, 50)
    assert (plan.all_paused, plan.room) == (True, 0)
    assert not control.plan(loads(1, 2), 1 << 40, 60).all_paused


def test_slow_start_opens_the_buffer_by_and_by() -> None:
    limits = PressureLimits(1000, 10_000, slow_start_ms=10_000)
    sizes = [limits.messages_at(ms) for ms in range(0, 11_000, 1000)]
    assert sizes[0] == 1
    assert sizes[-1] == 1000
    assert sizes == sorted(sizes)
    assert sizes[5] < 50
    assert PressureLimits(1000, 10_000).messages_at(0) == 1000


@settings(max_examples=100, deadline=None)
@given(
    arrivals=st.lists(st.lists(st.integers(0, 40), min_size=5, max_size=5), max_size=40),
    work=st.integers(0, 60),
    strict=st.booleans(),
)
def test_memory_is_bounded_and_an_idle_partition_never_rests(
    arrivals: list[list[int]], work: int, strict: bool
) -> None:
    """Five partitions with any arrivals; one that rests gets none."""
    control = PressureControl(PressureLimits(100, 1 << 30, grace_ms=0), strict=strict)
    held = [0] * 5
    resting: set[int] = set()
    for now_ms, wave in enumerate(arrivals):
        plan = control.plan(loads(*held), 1 << 40, now_ms)
        resting = (resting | {p for _, p in plan.pause}) - {p for _, p in plan.resume}
        if not strict:
            assert not any(held[partition] == 0 for partition in resting)
        room = plan.room
        for partition, count in enumerate(wave):
            if partition not in resting:
                arrived = min(count, room)
                room -= arrived
                held[partition] += arrived
        # A wave is at most 40 for each of the partitions that do not rest.
        assert sum(held) <= (100 if strict else 100 + 5 * 40 + 100)
        left = work
        for partition in range(5):
            done = min(left, held[partition])
            held[partition] -= done
            left -= done


@pytest.mark.parametrize("pressure", ["pause", "caller_runs", "direct"])
def test_a_slow_handler_gets_everything_and_memory_stays_bounded(pair: Pair, pressure: str) -> None:
    topic = pair.topic("orders", 3)
    send(pair.bootstrap, topic, [b"%d" % n for n in range(1500)], key=lambda n: b"%d" % n)
    app = App(pair.bootstrap)
    seen: set[int] = set()
    most = 0
    tick = threading.Event()

    @app.handler(topic, group="g", order="key", lanes=4, pressure=pressure, buffer_messages=60)
    def work(number: int) -> None:
        nonlocal most
        scheduler = app.runners[0].scheduler
        assert scheduler is not None
        most = max(most, scheduler.lanes.messages)
        tick.wait(0.0005)
        seen.add(number)

    with app:
        wait_until(lambda: len(seen) == 1500, "everything")
        wait_until(lambda: sum(committed(pair.bootstrap, "g", topic, p) for p in range(3)) == 1500)
    # A poll may bring as much as the buffer holds, and each partition may have its share of it.
    assert most <= (4 if pressure == "direct" else 180)


def test_what_finds_no_room_is_spilled_with_an_alarm_and_comes_back(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(600)])
    app = App(pair.bootstrap, store=pair.store_url)
    alarms: list[Alarm] = []
    app.on_alarm(alarms.append)
    seen: list[int] = []
    go_on = threading.Event()

    @app.handler(
        topic, group="g", order="none", workers=(1, 2), pressure="spill", buffer_messages=50
    )
    def work(number: int) -> None:
        assert go_on.wait(30)
        seen.append(number)

    with app:
        store = app.context.store
        assert store is not None
        wait_until(lambda: store.spill.count("g.work") >= 100, "spilled")
        wait_until(lambda: alarms, "an alarm")
        assert [alarm.name for alarm in alarms] == ["spill"]
        go_on.set()
        wait_until(lambda: len(seen) >= 600, "everything came back")
        wait_until(lambda: store.spill.count("g.work") == 0, "the spill is empty")
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 600)
    assert sorted(seen) == list(range(600))


def test_a_store_that_is_unavailable_holds_up_the_spill_but_not_forever(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "STORE_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(assignment, "STORE_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(runner, "RESTART_SECONDS", 0.01)
    put, is_away = Spill.put, threading.Event()
    is_away.set()

    def put_or_not(spill: Spill, *rest: Any) -> None:
        if is_away.is_set():
            raise StoreUnavailable("the database is away")
        put(spill, *rest)

    monkeypatch.setattr(Spill, "put", put_or_not)
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(300)])
    app = App(pair.bootstrap, store=pair.store_url)
    alarms: list[str] = []
    app.on_alarm(lambda alarm: alarms.append(alarm.name))
    seen: set[int] = set()
    tick = threading.Event()

    @app.handler(topic, group="g", order="none", workers=1, pressure="spill", buffer_messages=10)
    def work(number: int) -> None:
        tick.wait(0.001)
        seen.add(number)

    with app:
        wait_until(lambda: {"store-away", "consumer-restarts"} <= set(alarms), "it was noticed")
        is_away.clear()
        wait_until(lambda: len(seen) == 300, "everything")
    assert app.error is None


def test_slow_start_begins_with_few(pair: Pair) -> None:
    topic = pair.topic("orders")
    send(pair.bootstrap, topic, [b"%d" % n for n in range(200)])
    app = App(pair.bootstrap)
    at_once: list[int] = []

    @app.handler(topic, group="g", order="none", slow_start="1s", buffer_messages=500)
    def work(number: int) -> None:
        scheduler = app.runners[0].scheduler
        assert scheduler is not None
        at_once.append(scheduler.lanes.messages)

    with app:
        wait_until(lambda: len(at_once) == 200)
    assert max(at_once[:5]) <= 25

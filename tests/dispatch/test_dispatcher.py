"""Jobs go in on one side and run on the other, one at a time in each partition."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.dispatch.harness import Harness
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.dispatch import Delivery, Dispatcher, DispatchError, JobFailed, SpoolFull


@dataclass
class Order:
    number: int
    name: str


@dataclass
class Receipt:
    order: Order
    total: float


def test_an_answer_comes_back_typed(any_world: Harness) -> None:
    async def work(order: Order) -> Receipt:
        return Receipt(order, order.number * 1.5)

    async def main() -> None:
        async with any_world.dispatcher(work) as dispatcher:
            handle = await dispatcher.submit(Order(2, "tea"))
            assert await handle == Receipt(Order(2, "tea"), 3.0)
            many = await dispatcher.submit_all(Order(number, "x") for number in range(50))
            assert [(await one).order.number for one in many] == list(range(50))
            wait_until(lambda: dispatcher.metrics()["spool_items"] == 0)
            wait_until(lambda: any_world.idle() == 4, "all tokens come back")

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))


def test_everything_works_without_an_event_loop(harness: Harness) -> None:
    def work(job: str) -> str:
        return job.upper()

    node = harness.node(work)
    assert node.submit_sync("tea").result(WAIT_SECONDS) == "TEA"
    handles = node.submit_all_sync([str(number) for number in range(50)])
    assert [handle.result(WAIT_SECONDS) for handle in handles] == [str(n) for n in range(50)]
    assert all(handle.done() for handle in handles)


def test_a_node_may_submit_only_and_another_run(harness: Harness) -> None:
    def work(job: bytes) -> bytes:
        return job[::-1]

    harness.node(work)
    sender = harness.dispatcher()
    # Not even started: the first job does that.
    assert sender.submit_sync(b"abc").result(WAIT_SECONDS) == b"cba"
    assert sender.metrics()["partitions"] == 0


def test_a_worker_that_raises_fails_its_job_and_no_other(redis_harness: Harness) -> None:
    def work(job: int) -> int:
        if job == 13:
            raise ValueError("thirteen")
        return job

    node = redis_harness.node(work)
    handles = node.submit_all_sync([12, 13, 14])
    with pytest.raises(JobFailed, match="ValueError: thirteen") as failure:
        handles[1].result(WAIT_SECONDS)
    assert (failure.value.kind, failure.value.text) == ("ValueError", "thirteen")
    assert [handles[0].result(WAIT_SECONDS), handles[2].result(WAIT_SECONDS)] == [12, 14]
    with pytest.raises(JobFailed, match="is not int"):
        node.submit_sync("not a number").result(WAIT_SECONDS)


def test_one_job_at_a_time_in_each_partition(harness: Harness) -> None:
    lock = threading.Lock()
    pause = threading.Event()
    running: dict[int, str] = {}
    overlaps: list[tuple[str, str]] = []
    most = 0

    def work(job: int, delivery: Delivery) -> int:
        nonlocal most
        with lock:
            if delivery.partition in running:
                overlaps.append((running[delivery.partition], delivery.id))
            running[delivery.partition] = delivery.id
            most = max(most, len(running))
        # Long enough for a second one to come, if there were one.
        pause.wait(0.005)
        with lock:
            del running[delivery.partition]
        return job

    nodes = [harness.node(work), harness.node(work)]
    wait_until(lambda: all(node.metrics()["partitions"] == 2 for node in nodes))
    handles = [one for node in nodes for one in node.submit_all_sync(range(200))]
    assert sorted(handle.result(WAIT_SECONDS) for handle in handles) == sorted([*range(200)] * 2)
    assert not overlaps
    assert most <= 4
    assert all(node.metrics()["done"] > 0 for node in nodes)


def test_all_partitions_work_at_once(redis_harness: Harness) -> None:
    together = threading.Barrier(4)

    def work(_job: int) -> None:
        together.wait(WAIT_SECONDS)

    node = redis_harness.node(work)
    for handle in node.submit_all_sync(range(8)):
        assert handle.result(WAIT_SECONDS) is None


def test_an_unfinished_job_of_the_same_id_is_the_same(redis_harness: Harness) -> None:
    release = threading.Event()
    runs: list[str] = []

    def work(job: str) -> str:
        runs.append(job)
        assert release.wait(WAIT_SECONDS)
        return job

    node = redis_harness.node(work)
    first = node.submit_sync("one", id="the-id")
    wait_until(lambda: runs)
    second = node.submit_sync("one", id="the-id")
    assert second is first
    release.set()
    assert second.result(WAIT_SECONDS) == "one"
    assert runs == ["one"]
    assert node.submit_sync("two", id="the-id").result(WAIT_SECONDS) == "two"


def test_a_full_spool_refuses_if_told_to(redis_harness: Harness) -> None:
    node = redis_harness.node(None, full="refuse", spool_items_max=3)
    node.submit_all_sync([b"1", b"2", b"3"])
    with pytest.raises(SpoolFull, match='full="wait"'):
        node.submit_sync(b"4")


def test_a_full_spool_makes_submitters_wait(redis_harness: Harness) -> None:
    release = threading.Event()

    def work(_job: bytes) -> None:
        assert release.wait(WAIT_SECONDS)

    node = redis_harness.node(work, spool_items_max=3)
    node.submit_all_sync([b"1", b"2", b"3"])
    with pytest.raises(TimeoutError, match="no room"):
        node.submit_sync(b"4", timeout=0.1)

    async def main() -> None:
        waiting = asyncio.create_task(node.submit(b"5"))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        assert node.metrics()["spool_waiting"] == 2
        release.set()
        await asyncio.wait_for(waiting, WAIT_SECONDS)

    asyncio.run(main())
    wait_until(lambda: node.metrics()["done"] == 5)
    assert node.metrics()["spool_waiting"] == 0


def test_what_cannot_be_a_job_or_a_worker_is_refused(redis_harness: Harness) -> None:
    node = redis_harness.node(None)
    with pytest.raises(DispatchError, match="None is not a job"):
        node.submit_sync(None)
    for id in ("", "x" * 256, "a\0b"):
        with pytest.raises(DispatchError, match="1 to 255 bytes without NUL"):
            node.submit_sync(b"x", id=id)
    with pytest.raises(DispatchError, match=r"max\.request\.size"):
        node.submit_sync(b"x" * 1_000_000)
    with pytest.raises(DispatchError, match="must take one job, not 2"):
        node.worker(lambda _one, _two: None)
    node.worker(lambda _one: None)
    with pytest.raises(DispatchError, match="has one worker"):
        node.worker(lambda _one: None)


def test_settings_that_would_stop_everybody_are_refused() -> None:
    for weight in (0, -1, 17):
        with pytest.raises(ValueError, match="from 1 to 16"):
            Dispatcher("nowhere:1", topic="jobs", weight=weight)
    with pytest.raises(DispatchError, match="in the same generation"):
        Dispatcher("nowhere:1", topic="jobs", settings={"group.instance.id": "one"})


def test_a_job_that_the_topic_does_not_take_fails_and_no_other(redis_harness: Harness) -> None:
    def work(job: bytes) -> int:
        return len(job)

    node = redis_harness.node(work, settings={"max.request.size": 2_000_000})
    resource = ConfigResource(
        "topic",
        redis_harness.topic,
        incremental_configs=[
            ConfigEntry(
                "max.message.bytes",
                "100000",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin = AdminClient({"bootstrap.servers": redis_harness.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)
    handles = node.submit_all_sync([b"x", b"x" * 200_000, b"xx"])
    with pytest.raises(JobFailed, match=r"too large|larger than"):
        handles[1].result(WAIT_SECONDS)
    assert [handles[0].result(WAIT_SECONDS), handles[2].result(WAIT_SECONDS)] == [1, 2]
    wait_until(lambda: redis_harness.idle() == 4, "all tokens come back")


def test_an_answer_that_the_done_topic_does_not_take_fails_its_job(redis_harness: Harness) -> None:
    def work(size: int) -> bytes:
        return b"x" * size

    node = redis_harness.node(work)
    handles = node.submit_all_sync([1, 1_100_000, 2])
    with pytest.raises(JobFailed, match="AnswerTooLarge"):
        handles[1].result(WAIT_SECONDS)
    assert [handles[0].result(WAIT_SECONDS), handles[2].result(WAIT_SECONDS)] == [b"x", b"xx"]
    wait_until(lambda: redis_harness.idle() == 4, "all tokens come back")


def test_a_node_reads_outcomes_only_when_it_has_jobs_of_its_own(redis_harness: Harness) -> None:
    def work(job: int) -> int:
        return job

    worker = redis_harness.node(work)
    submitter = redis_harness.node(None)
    for number in range(3):
        assert submitter.submit_sync(number).result(WAIT_SECONDS) == number
    node = worker.node
    assert node is not None
    assert node.reader._thread.ident is None
    at_start = dict(node.reader.position)
    # Its first one: read from here on, not from the node's start.
    assert worker.submit_sync(4).result(WAIT_SECONDS) == 4
    assert node.reader._thread.ident is not None
    assert node.reader.position[0] >= at_start[0] + 3


def test_jobs_that_wait_without_any_token_are_explained_once(
    redis_harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.dispatch.lookup_service.OVERDUE_CHECK_SECONDS", 0.05)
    node = redis_harness.node(None)
    node.submit_sync(b"nobody is there")
    wait_until(lambda: "no worker has put a token" in caplog.text)
    calls = node.metrics()["store_calls"]
    wait_until(lambda: node.metrics()["store_calls"] >= calls + 2)
    assert caplog.text.count("no worker has put a token") == 1


def test_who_waits_when_the_node_stops_is_told(redis_harness: Harness) -> None:
    node = redis_harness.node(None)
    handle = node.submit_sync(b"never run here")
    node.stop()
    with pytest.raises(DispatchError, match="kept in the spool"):
        handle.result(WAIT_SECONDS)
    with pytest.raises(DispatchError, match="the dispatcher has stopped"):
        node.submit_sync(b"too late")


def test_tokens_of_topics_do_not_mix(redis_harness: Harness) -> None:
    def left(_job: str) -> str:
        return "left"

    def right(_job: str) -> str:
        return "right"

    nodes = [
        redis_harness.node(left, topic=f"{redis_harness.topic}-v1", partitions=2),
        redis_harness.node(right, topic=f"{redis_harness.topic}-v2", partitions=3),
    ]
    answers = [
        {handle.result(WAIT_SECONDS) for handle in node.submit_all_sync(["x"] * 20)}
        for node in nodes
    ]
    assert answers == [{"left"}, {"right"}]
    assert len(redis_harness.status(nodes[0].topic).tokens) == 2
    assert len(redis_harness.status(nodes[1].topic).tokens) == 3


def test_a_broker_that_is_not_there_is_a_clear_error(
    redis_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.dispatch.topic_admin.REQUEST_SECONDS", 0.5)
    redis_harness.bootstrap = "127.0.0.1:1"
    with pytest.raises(DispatchError, match=r"127\.0\.0\.1:1 .*is the broker running"):
        redis_harness.node(None)

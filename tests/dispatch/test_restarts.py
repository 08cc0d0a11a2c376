"""What a node had not finished is finished after its restart, or by those that are left."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.dispatch.harness import Harness
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.dispatch import Delivery, Dispatcher
from headrace.dispatch.node import Node
from headrace.store import open_store


def test_a_restarted_node_goes_on_with_its_spool(harness: Harness) -> None:
    spool = harness.folder / "own.spool"
    submitter = harness.node(None, spool=spool)
    submitter.submit_all_sync(range(100))
    submitter.stop()
    seen: Counter[int] = Counter()

    def work(job: int) -> None:
        seen[job] += 1

    again = harness.node(work, spool=spool)
    wait_until(lambda: len(seen) == 100)
    wait_until(lambda: again.metrics()["spool_items"] == 0)
    assert set(seen.values()) == {1}
    again.stop()
    third = harness.node(None, spool=spool)
    assert third.metrics()["spool_items"] == 0


def test_what_ended_while_its_node_was_away_does_not_run_again(harness: Harness) -> None:
    release = threading.Event()
    seen: Counter[int] = Counter()

    def work(job: int) -> int:
        seen[job] += 1
        assert release.wait(WAIT_SECONDS)
        return job

    worker = harness.node(work)
    spool = harness.folder / "own.spool"
    submitter = harness.node(None, spool=spool)
    submitter.submit_all_sync(range(4))
    wait_until(lambda: len(seen) == 4)
    submitter.stop()
    release.set()
    wait_until(lambda: worker.metrics()["done"] == 4)
    again = harness.node(None, spool=spool)
    wait_until(lambda: again.metrics()["spool_items"] == 0)
    assert set(seen.values()) == {1}


def test_a_node_that_ends_hands_over_through_a_shared_table(
    harness: Harness, new_database: Callable[[str], str]
) -> None:
    seen: Counter[int] = Counter()

    def work(job: int) -> None:
        seen[job] += 1

    url = new_database("sqlite")
    leaving = harness.node(None, spool=url)
    leaving.submit_all_sync(range(50))
    leaving.stop()
    staying = harness.node(work, spool=url)
    wait_until(lambda: len(seen) == 50)
    wait_until(lambda: staying.metrics()["spool_items"] == 0)
    assert set(seen.values()) == {1}


def test_a_job_that_the_group_passed_over_is_sent_again(
    redis_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.dispatch.lookup_service.OVERDUE_MS", 100)
    monkeypatch.setattr("headrace.dispatch.lookup_service.OVERDUE_CHECK_SECONDS", 0.3)
    seen: Counter[bytes] = Counter()
    release = threading.Event()

    def work(job: bytes) -> None:
        seen[job] += 1
        assert release.wait(WAIT_SECONDS)

    submitter = redis_harness.node(None, partitions=1)
    worker = redis_harness.node(work, partitions=1, drain=0)
    submitter.submit_sync(b"skipped")
    wait_until(lambda: seen[b"skipped"])
    worker.stop()
    # Somebody moves the group to the end, over a job without an outcome.
    admin = AdminClient({"bootstrap.servers": redis_harness.bootstrap, "log_level": 0})
    node = submitter.node
    assert node is not None
    (end,) = node.admin.ends(redis_harness.topic, [0]).values()
    places = [TopicPartition(redis_harness.topic, 0, end)]
    request = ConsumerGroupTopicPartitions(worker.group, places)
    (done,) = admin.alter_consumer_group_offsets([request]).values()
    done.result(WAIT_SECONDS)
    release.set()
    another = redis_harness.node(work, partitions=1)
    wait_until(lambda: another.metrics()["done"] == 1)
    wait_until(lambda: submitter.metrics()["spool_items"] == 0)
    assert submitter.metrics()["lost_back"] == 1


def test_a_worker_that_vanishes_has_its_job_run_elsewhere(redis_harness: Harness) -> None:
    seen: Counter[str] = Counter()
    release = threading.Event()

    def vanishing(job: str) -> str:
        seen[job] += 1
        assert release.wait(WAIT_SECONDS)
        return "too late"

    def work(job: str) -> str:
        seen[job] += 1
        return "done elsewhere"

    submitter = redis_harness.node(None, partitions=1)
    worker = redis_harness.node(vanishing, partitions=1)
    handle = submitter.submit_sync("job")
    wait_until(lambda: seen["job"])
    vanish(worker)
    redis_harness.node(work, partitions=1)
    assert handle.result(WAIT_SECONDS) == "done elsewhere"
    assert seen["job"] == 2
    release.set()


def vanish(dispatcher: Dispatcher) -> None:
    """Let a node end as a crash does: nothing is finished, renewed or written any more."""
    node = dispatcher.node
    assert isinstance(node, Node)
    assert node.consumer is not None
    node.owner.ended = lambda *_: None  # type: ignore[method-assign]
    node.workers._ended = lambda *_: None  # type: ignore[union-attr]
    node._end_ticks()
    node.tokens.stop(0)
    node.consumer.stop()


def test_a_job_that_runs_twice_has_one_effect_with_an_inbox(
    redis_harness: Harness, new_database: Callable[[str], str]
) -> None:
    store = open_store(new_database("sqlite"))
    store.create()
    effects: list[str] = []
    runs: list[str] = []

    def work(job: str, delivery: Delivery) -> None:
        runs.append(job)
        with store.begin() as tx:
            if store.inbox.claim(tx, "billing", [delivery.id], tx.now_ms):
                effects.append(job)

    node = redis_harness.node(work)
    for _ in range(2):
        node.submit_sync("tea", id="order-7").result(WAIT_SECONDS)
    assert (runs, effects) == (["tea", "tea"], ["tea"])
    store.close()

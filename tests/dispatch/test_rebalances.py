"""Nodes come and go while jobs run: nothing is lost, and every partition keeps one token."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.apache_kafka import ApacheKafka
from tests.dispatch.harness import Harness
from tests.waiting import WAIT_SECONDS, wait_until

EAGER = {"partition.assignment.strategy": "range"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


def scale(harness: Harness, settings: dict[str, Any]) -> None:
    """Submit to one node while two others join and leave."""
    runs: Counter[int] = Counter()

    def work(job: int) -> int:
        runs[job] += 1
        return job

    first = harness.node(work, settings=settings)
    handles = first.submit_all_sync(range(100))
    second = harness.node(work, settings=settings)
    handles += first.submit_all_sync(range(100, 200))
    wait_until(lambda: second.metrics()["partitions"] == 2)
    third = harness.node(work, settings=settings)
    handles += third.submit_all_sync(range(200, 300))
    wait_until(lambda: second.metrics()["done"] > 0)
    second.stop()
    handles += first.submit_all_sync(range(300, 400))
    assert [handle.result(WAIT_SECONDS) for handle in handles] == list(range(400))
    third.stop()
    wait_until(lambda: first.metrics()["partitions"] == 4 and harness.idle() == 4)
    assert first.submit_sync(400).result(WAIT_SECONDS) == 400
    # Nobody died, so nothing had to run again.
    assert set(runs.values()) == {1}


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_nodes_join_and_leave(harness: Harness, settings: dict[str, Any]) -> None:
    scale(harness, settings)


def test_nodes_join_and_leave_a_group_of_kip_848(
    apache_kafka: ApacheKafka, redis_harness: Harness
) -> None:
    redis_harness.bootstrap = apache_kafka.bootstrap
    # With the new protocol these are the broker's business.
    of_broker = {"session.timeout.ms": None, "heartbeat.interval.ms": None}
    settings = {"group.protocol": "consumer", **of_broker}
    runs: Counter[int] = Counter()

    def work(job: int) -> int:
        runs[job] += 1
        return job

    first = redis_harness.node(work, settings=settings)
    second = redis_harness.node(work, settings=settings)
    handles = first.submit_all_sync(range(100))
    wait_until(lambda: second.metrics()["partitions"] == 2)
    handles += second.submit_all_sync(range(100, 200))
    assert [handle.result(WAIT_SECONDS) for handle in handles] == list(range(200))
    second.stop()
    assert first.submit_sync(200).result(WAIT_SECONDS) == 200
    assert set(runs.values()) == {1}


def test_a_running_job_survives_the_loss_of_its_partition(harness: Harness) -> None:
    release = threading.Event()
    runs: Counter[str] = Counter()

    def work(job: str) -> str:
        runs[job] += 1
        if job == "long":
            assert release.wait(WAIT_SECONDS)
        return job

    first = harness.node(work, partitions=2, settings=EAGER)
    long = first.submit_sync("long")
    wait_until(lambda: runs["long"])
    # An eager rebalance takes all partitions away and gives one back.
    second = harness.node(work, partitions=2, settings=EAGER)
    wait_until(lambda: second.metrics()["partitions"] == 1)
    short = second.submit_all_sync(["short"] * 20)
    for handle in short:
        assert handle.result(WAIT_SECONDS) == "short"
    release.set()
    assert long.result(WAIT_SECONDS) == "long"
    assert runs["long"] == 1
    wait_until(lambda: harness.idle() == 2)


def test_new_partitions_get_tokens_while_nodes_run(harness: Harness) -> None:
    seen: set[int] = set()
    together = threading.Barrier(4)

    def work(job: int) -> int:
        if job < 0:
            together.wait(WAIT_SECONDS)
        seen.add(job)
        return job

    node = harness.node(work, partitions=2)
    assert node.submit_sync(1).result(WAIT_SECONDS) == 1
    admin = AdminClient({"bootstrap.servers": harness.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(harness.topic, 4)])[harness.topic].result(WAIT_SECONDS)
    wait_until(lambda: node.metrics()["partitions"] == 4)
    # All four at once, or nobody passes the barrier.
    for handle in node.submit_all_sync([-1, -2, -3, -4]):
        handle.result(WAIT_SECONDS)

"""The token store is slow, down or empty: jobs still run, and every token comes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from tests.dispatch.harness import Harness
from tests.redis_server import RedisServer
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.dispatch import Dispatcher
from headrace.dispatch.tokens import open_tokens


@pytest.fixture
def own_redis(redis_harness: Harness) -> Iterator[RedisServer]:
    """A server that the test may stop."""
    with RedisServer() as server:
        redis_harness.tokens = server.url
        yield server
        # The nodes have to end before it.
        redis_harness.stack.close()


def runner(harness: Harness, runs: Counter[int], **options: Any) -> Dispatcher:
    def work(job: int) -> int:
        runs[job] += 1
        return job

    return harness.node(work, **options)


def test_an_emptied_store_is_filled_again(redis_harness: Harness, own_redis: RedisServer) -> None:
    runs: Counter[int] = Counter()
    nodes = [runner(redis_harness, runs) for _ in range(2)]
    wait_until(lambda: redis_harness.idle() == 4)
    client = redis.Redis.from_url(own_redis.url)
    for turn in range(3):
        handles = nodes[turn % 2].submit_all_sync(range(turn * 100, turn * 100 + 100))
        client.flushall()
        assert len({handle.result(WAIT_SECONDS) for handle in handles}) == 100
        wait_until(lambda: redis_harness.idle() == 4, "one token for each partition")
    client.close()
    assert set(runs.values()) == {1}


def test_work_goes_on_when_the_store_was_away(
    redis_harness: Harness, own_redis: RedisServer
) -> None:
    runs: Counter[int] = Counter()
    release = threading.Event()

    def work(job: int) -> int:
        runs[job] += 1
        if job < 4:
            assert release.wait(WAIT_SECONDS)
        return job

    # A node that does not poll for this long loses its partitions.
    settings = {"session.timeout.ms": 6000, "max.poll.interval.ms": 6000}
    node = redis_harness.node(work, settings=settings)
    handles = node.submit_all_sync(range(50))
    wait_until(lambda: sum(runs.values()) == 4)
    own_redis.stop()
    release.set()
    # Results come without Redis; only giving the tokens back waits for it.
    assert [handle.result(WAIT_SECONDS) for handle in handles[:4]] == [0, 1, 2, 3]
    wait_until(lambda: node.metrics()["store_away"])
    assert node.metrics()["partitions"] == 4
    own_redis.start()
    assert [handle.result(WAIT_SECONDS) for handle in handles] == list(range(50))
    wait_until(lambda: redis_harness.idle() == 4)
    assert set(runs.values()) == {1}


def test_a_long_job_keeps_its_lease_and_its_partition(redis_harness: Harness) -> None:
    runs: Counter[str] = Counter()
    release = threading.Event()

    def work(job: str) -> str:
        runs[job] += 1
        if job == "long":
            assert release.wait(WAIT_SECONDS)
        return job

    # Longer than a poll may take, and than several leases.
    settings = {"session.timeout.ms": 6000, "max.poll.interval.ms": 6000}
    node = redis_harness.node(work, settings=settings)
    wait_until(lambda: redis_harness.idle() == 4)
    generations = {seen.fence.epoch for seen in redis_harness.status().tokens.values()}
    long = node.submit_sync("long")
    wait_until(lambda: runs["long"])
    clock = threading.Event()
    for _ in range(80):
        assert node.submit_sync("short").result(WAIT_SECONDS) == "short"
        clock.wait(0.1)

    def leases() -> list[bool]:
        return [it.is_leased for it in redis_harness.status().tokens.values() if it.state == "out"]

    # Four leases later, it is there by renewals alone.
    wait_until(lambda: leases() == [True])
    release.set()
    assert long.result(WAIT_SECONDS) == "long"
    assert (runs["long"], runs["short"]) == (1, 80)
    wait_until(lambda: redis_harness.idle() == 4)
    generations |= {seen.fence.epoch for seen in redis_harness.status().tokens.values()}
    assert len(generations) == 1
    assert "owner_refused" not in node.metrics()


def test_a_token_that_its_taker_never_used_comes_back(redis_harness: Harness) -> None:
    runs: Counter[int] = Counter()
    node = runner(redis_harness, runs, partitions=1)
    wait_until(lambda: redis_harness.idle() == 1)
    store = open_tokens(redis_harness.tokens, redis_harness.topic, node.limits)
    # A node that dies as soon as it has the only token.
    assert len(store.exchange("dead", want=1).granted) == 1
    store.close()
    assert node.submit_sync(7).result(WAIT_SECONDS) == 7
    wait_until(lambda: redis_harness.idle() == 1)

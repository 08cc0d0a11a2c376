"""The load generator builds with the standard library alone and passes its own tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from benchmarks import generator
from headrace.testing import BrokerThread

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def test_its_own_tests_pass() -> None:
    done = subprocess.run(
        ["go", "test", "./..."], cwd=generator.SOURCE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broker_that_is_not_there_is_a_clear_error() -> None:
    load = generator.Generator(generator.build(), "127.0.0.1:1")
    with pytest.raises(generator.GeneratorError, match="connection refused"):
        load.run("produce", topic="none")


def test_a_load_that_makes_no_sense_is_refused() -> None:
    load = generator.Generator(generator.build(), "127.0.0.1:1")
    with pytest.raises(generator.GeneratorError, match="-acks 2"):
        load.run("produce", acks=2)


@pytest.fixture(scope="module")
def load() -> Iterator[generator.Generator]:
    # Members of the bench's groups come all at once: nobody need wait for more.
    with BrokerThread(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield generator.Generator(generator.build(), broker.bootstrap)


def test_rebalances_are_followed_to_the_last_share(load: generator.Generator) -> None:
    load.run("create", topic="rebalanced", partitions=4)
    answer = load.run("rebalance", topic="rebalanced", partitions=4, members=5, seconds=0.2)
    assert answer["requests"] >= 2
    assert answer["join_ms"]["samples"] == answer["leave_ms"]["samples"]
    assert answer["formation_seconds"] > 0


def test_commits_are_counted_and_found_again(load: generator.Generator) -> None:
    topic = {"topic": "committed", "partitions": 3, "groups": 4}
    load.run("create", topic="committed", partitions=3)
    answer = load.run("commit", **topic, connections=2, in_flight=3, commits_max=240, seconds=60)
    assert (answer["requests"], answer["records"]) == (80, 240)
    assert load.run("committed", **topic, commits=240)["serving_unix_ns"] > 0
    with pytest.raises(generator.GeneratorError, match="the broker tells"):
        load.run("committed", **topic, commits=480)


@pytest.mark.parametrize("flow", [1, 2])
def test_transactions_are_committed_and_read_back(load: generator.Generator, flow: int) -> None:
    topic = {"topic": f"transacted-{flow}", "partitions": 2}
    load.run("create", **topic)
    answer = load.run("transact", **topic, flow=flow, seconds=0.3)
    assert answer["records"] == 10 * answer["requests"] > 0

"""Nodes are killed, storms rage and Redis forgets: no item is lost, no partition flies two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.faults.dispatch_harness import BROKER_SETTINGS, DispatchHarness, every
from tests.faults.processes import BrokerProcess
from tests.redis_server import RedisServer

KILL_SECONDS = 2.0
# As the promise says it.
LONG_NODES, LONG_PARTITIONS, LONG_ITEMS, LONG_WORK_MS = 4, 16, 20_000, 50
# The same in short.
NODES, PARTITIONS, ITEMS, WORK_MS = 3, 6, 1_200, 50
# Ten seconds of work, so that the last kill comes before its end.
SHORT_KILL_SECONDS = 1.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=BROKER_SETTINGS) as broker:
        yield broker


def endure(
    harness: DispatchHarness, steps: list[Callable[[], object]], pause_s: float = KILL_SECONDS
) -> None:
    """Let it happen, let all items end, and look at the whole history."""
    harness.start()
    every(pause_s, steps, harness)
    assert harness.finish(), harness.complaint()
    assert harness.has_all_tokens(), harness.complaint()
    assert harness.stop() == [0] * len(harness.nodes), harness.complaint()
    assert harness.left_in_spools() == 0
    checker = harness.check()
    counts = {
        "items": len(checker.finished),
        "kills": harness.kills,
        "refused": checker.refused,
        "repeats": checker.repeats,
    }
    print(json.dumps(counts))
    assert checker.anomalies() == []
    assert len(checker.finished) == len(checker.submitted) == harness.items


def short(folder: Path, bootstrap: str, server: RedisServer) -> None:
    with DispatchHarness(
        folder,
        bootstrap,
        server,
        nodes=NODES,
        partitions=PARTITIONS,
        items=ITEMS,
        work_ms=WORK_MS,
    ) as harness:
        endure(
            harness,
            [
                harness.kill_one,
                harness.flush_tokens,
                harness.kill_one,
                harness.restart_tokens,
                lambda: harness.storm(1),
                harness.kill_one,
            ],
            SHORT_KILL_SECONDS,
        )
        assert harness.kills == 3


@pytest.mark.timeout(600)
def test_nodes_are_killed_and_redis_forgets(
    tmp_path: Path, broker: BrokerProcess, server: RedisServer
) -> None:
    short(tmp_path, broker.bootstrap, server)


@pytest.mark.timeout(600)
def test_on_apache_kafka_too(
    tmp_path: Path, apache_kafka: ApacheKafka, server: RedisServer
) -> None:
    short(tmp_path, apache_kafka.bootstrap, server)


@pytest.mark.timeout(600)
def test_survivors_adopt_the_items_of_a_node_that_never_comes_back(
    tmp_path: Path, broker: BrokerProcess, server: RedisServer
) -> None:
    with DispatchHarness(
        tmp_path,
        broker.bootstrap,
        server,
        nodes=NODES,
        partitions=PARTITIONS,
        items=ITEMS // 4,
        work_ms=WORK_MS,
        spool=f"sqlite:///{tmp_path}/spool.db",
    ) as harness:
        harness.start()
        dead = harness.nodes[0]
        harness.wait_submitted(dead, ITEMS // 20)
        harness.leave(dead)
        assert harness.finish(), harness.complaint()
        assert harness.stop() == [0] * len(harness.nodes), harness.complaint()
        assert harness.check().anomalies() == []


def promised(harness: DispatchHarness) -> None:
    """A kill every two seconds from beginning to end, and all the rest in between."""

    def kills(count: int) -> list[Callable[[], object]]:
        return [harness.kill_one] * count

    steps = kills(5)
    for disturbance in (
        harness.flush_tokens,
        harness.restart_tokens,
        lambda: harness.storm(10),
        harness.flush_tokens,
        harness.restart_tokens,
    ):
        steps += [disturbance, *kills(5)]
    endure(harness, steps + kills(10))
    assert harness.kills == 40


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_thousand_items(tmp_path: Path, broker: BrokerProcess, server: RedisServer) -> None:
    with DispatchHarness(
        tmp_path,
        broker.bootstrap,
        server,
        nodes=LONG_NODES,
        partitions=LONG_PARTITIONS,
        items=LONG_ITEMS,
        work_ms=LONG_WORK_MS,
    ) as harness:
        promised(harness)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_thousand_items_on_apache_kafka(
    tmp_path: Path, apache_kafka: ApacheKafka, server: RedisServer
) -> None:
    with DispatchHarness(
        tmp_path,
        apache_kafka.bootstrap,
        server,
        nodes=LONG_NODES,
        partitions=LONG_PARTITIONS,
        items=LONG_ITEMS,
        work_ms=LONG_WORK_MS,
    ) as harness:
        promised(harness)

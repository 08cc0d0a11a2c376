"""Pipelines through kill -9 of the driver, of its tasks and of the broker: 0 lost, 0 double."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.faults.processes import BrokerProcess
from tests.faults.spark_pipelines import ALL
from tests.faults.spark_world import Broker, SparkWorld

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None, reason="Java is not installed; Spark needs 17 or later"
)

SETTINGS = ("offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4")
SHORT = ("copied", "summed", "kept")
PER_KILL = 6000
LONG_KILLS = 32


def kill_in_turn(world: SparkWorld, kinds: list[str], names: Sequence[str]) -> None:
    """Kill something after a batch or two, with new input each time, and check at the end."""
    try:
        for kind in kinds:
            world.send(PER_KILL)
            world.start()
            world.wait_for_batches(world.chance.choice([1, 2]))
            world.kill(kind)
        world.wait_until_done()
        world.stop()
        assert {name: world.doubled(name) for name in names} == {name: [] for name in names}
    finally:
        world.stop()


@pytest.mark.timeout(600)
def test_output_is_the_function_of_the_input_through_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        world = SparkWorld(tmp_path, broker, SHORT)
        kill_in_turn(world, ["task", "broker", "driver"], SHORT)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", ["headrace", "apache"])
def test_many_kills_over_one_run(tmp_path: Path, kind: str) -> None:
    settings = dict(setting.split("=") for setting in SETTINGS)
    broker: Broker
    with (
        BrokerProcess(tmp_path / "data", settings=SETTINGS)
        if kind == "headrace"
        else ApacheKafka(settings=settings)
    ) as broker:
        world = SparkWorld(tmp_path, broker, list(ALL), seed=1)
        kinds = [
            world.chance.choice(["driver", "jvm", "task", "task", "broker"])
            for _ in range(LONG_KILLS)
        ]
        kill_in_turn(world, kinds, list(ALL))
        assert world.kills.total() >= 30

"""Pipelines through kill -9 of driver, executors, tasks and broker: 0 lost, 0 double."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.faults.processes import BrokerProcess
from tests.faults.spark_harness import SparkHarness
from tests.faults.spark_pipelines import ALL
from tests.spark.clusters import quick, spark_cluster

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None, reason="Java is not installed; Spark needs 17 or later"
)

SETTINGS = ("offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4")
# None of these can hide that a batch was written twice.
SHORT = ("copied", "listed", "kept")
# Two batches at the least.
PER_KILL = 4000
KINDS = ("driver", "jvm", "executor", "task", "broker")
# Of each kind, in a run of the long form.
LONG_KILLS = 7


def kill_in_turn(harness: SparkHarness, kinds: list[str], names: Sequence[str]) -> None:
    """Kill something within a batch, with new input each time, and check at the end."""
    try:
        for kind in kinds:
            harness.send_and_wait_for_batches(PER_KILL, harness.chance.choice([1, 2]))
            harness.send_and_wait_within_batch(PER_KILL)
            harness.kill(kind)
        harness.wait_until_done()
        harness.stop()
        assert {name: harness.doubled(name) for name in names} == {name: [] for name in names}
    finally:
        harness.stop()


@pytest.mark.timeout(600)
def test_output_is_the_function_of_the_input_through_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        harness = SparkHarness(tmp_path, broker, SHORT)
        kill_in_turn(harness, ["task", "broker", "driver"], SHORT)
        assert harness.kills == {"task": 1, "broker": 1, "driver": 1}


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", ["headrace", "apache"])
def test_many_kills_over_one_run(tmp_path: Path, kind: str) -> None:
    settings = dict(setting.split("=") for setting in SETTINGS)
    made = (
        BrokerProcess(tmp_path / "data", settings=SETTINGS)
        if kind == "headrace"
        else ApacheKafka(settings=settings)
    )
    with made as broker, spark_cluster(tmp_path, quick()) as cluster:
        harness = SparkHarness(tmp_path, broker, list(ALL), seed=1, cluster=cluster)
        kinds = [*KINDS] * LONG_KILLS
        harness.chance.shuffle(kinds)
        kill_in_turn(harness, kinds, list(ALL))
        assert harness.kills == dict.fromkeys(KINDS, LONG_KILLS)
        assert harness.kills.total() >= 30
        assert harness.interrupted >= 10
